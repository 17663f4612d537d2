"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_coding.environment import CodeEnvironment as CodeEnvironment
from wanderlust_coding.environment import CodeTask as CodeTask
