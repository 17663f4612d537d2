"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_reasoning.reasoner import train_reasoner as train_reasoner
from wanderlust_reasoning.reasoner_config import ReasonerConfig as ReasonerConfig
