"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_proofs.checkers import verify_artefact as verify_artefact
from wanderlust_proofs.contract import ArtefactFile as ArtefactFile
from wanderlust_proofs.contract import Statement as Statement
from wanderlust_proofs.smt import SmtChecker as SmtChecker
from wanderlust_proofs.statement_judge import StatementJudge as StatementJudge
