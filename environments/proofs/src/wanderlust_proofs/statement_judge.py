"""A judge beside the validator of verified artefacts: does a formal statement say what its words say?

No program can decide that, so it is a finding of its own, `disagrees`, which is recorded and counted and takes no
reward. A judge that fails has no finding, and is counted as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from wanderlust.errors import WanderlustError, one_line
from wanderlust.rubrics.judge import Judge
from wanderlust.rubrics.rubric import RewardResult, reward_value
from wanderlust.types import Policy
from wanderlust_proofs.contract import Finding, Statement

AGREES = 0.5
"""A verdict below this is a finding."""
MEANING_TEMPLATE = """Does this formal statement say what the words say, no more and no less? HIGH is exactly, LOW is \
something else.

<words>
{informal}
</words>
<statement>
{formal}
</statement>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a judge says of a statement and its words."""

    agreement: float | None
    """From 0 to 1; None where the judge gave no verdict, or the statement has no words."""
    why: str = ""

    @property
    def finding(self) -> Finding | None:
        """`disagrees`, where the judge says so."""
        if self.agreement is None or self.agreement >= AGREES:
            return None
        return Finding(name="disagrees", why=self.why or f"a judge gives the agreement {self.agreement:g}")


class StatementJudge:
    """Asks a judge whether statements say what their words say.

    The judge is a policy, which is asked for a verdict in JSON, or a reward function with the fields `informal` and
    `formal`: a `Judge`, a `ChoiceJudge`, a function.

    Example:
        >>> import asyncio
        >>> from wanderlust_proofs.contract import Statement
        >>> def judge(informal, formal):
        ...     return float(("even" in informal) == ("% 2 == 0" in formal))
        >>> contract = Statement(kind="program", text="def f(a)\\nensures result % 2 == 0", informal="an odd number")
        >>> asyncio.run(StatementJudge(judge).meaning(contract)).finding.name
        'disagrees'
    """

    def __init__(self, judge: Policy | Callable[..., Any]):
        """`judge` is a policy or a reward function."""
        asks = hasattr(judge, "complete")
        self.judge: Any = Judge(judge, MEANING_TEMPLATE, name="meaning") if asks else judge  # type: ignore[arg-type]

    async def meaning(self, statement: Statement) -> Meaning:
        """The judge's verdict. It never raises for what the judge does."""
        if not statement.informal:
            return Meaning(agreement=None, why="the statement has no words beside it")
        formal = "\n".join([*statement.given.values(), statement.text])
        try:
            found = self.judge(informal=statement.informal, formal=formal)
            found = await found if isawaitable(found) else found
            result = found if isinstance(found, RewardResult) else RewardResult(value=found)
            return Meaning(agreement=reward_value(result.value), why=one_line(result.note, 300))
        except WanderlustError as error:
            return Meaning(agreement=None, why=one_line(str(error), 300))
