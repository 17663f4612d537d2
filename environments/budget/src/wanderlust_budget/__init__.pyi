"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_budget.token_budget import TokenBudget as TokenBudget
