"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_optimize.prompt_evolution import EvolutionConfig as EvolutionConfig
from wanderlust_optimize.prompt_evolution import PromptEvolution as PromptEvolution
from wanderlust_optimize.prompt_evolution import optimize_prompt as optimize_prompt
