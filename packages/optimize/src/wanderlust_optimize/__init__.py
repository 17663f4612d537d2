"""A better system text for a policy, without training: reflective prompt evolution (GEPA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust_optimize.prompt_evolution import EvolutionConfig as EvolutionConfig
    from wanderlust_optimize.prompt_evolution import PromptEvolution as PromptEvolution
    from wanderlust_optimize.prompt_evolution import optimize_prompt as optimize_prompt

__all__, __getattr__, __dir__ = lazy_names(
    __name__, {"prompt_evolution": "EvolutionConfig PromptEvolution optimize_prompt"}
)
