"""`wander optimize`: a better system text for a policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import (
    ANSWER_DEFAULTS,
    EnvironmentName,
    JsonFlag,
    ModelOptions,
    PolicyName,
    PositiveInt,
)
from wanderlust.cli.output import show_result
from wanderlust.policies.resolve import resolve_judge_policy, resolve_policy
from wanderlust.store.run_folder import shell_command
from wanderlust.tasks.instructed import read_instruction
from wanderlust.tasks.registry import resolve_environment


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How long is searched, by whom, and on which tasks."""

    reflector: str | None = None
    """Policy that writes new texts: a URL, a provider's model, a run or checkpoint, a script. Default: --policy."""
    reflector_model: str | None = None
    """Name of its model, where it is a URL."""
    reflector_max_tokens: PositiveInt = 1024
    """Bound of one of its answers."""
    system: Path | None = None
    """Text file with the system text to begin with. Default: the environment's own."""
    iterations: PositiveInt = 20
    """Texts that are proposed."""
    minibatch: PositiveInt = 4
    """Training tasks that a proposal is made from, and accepted by."""
    pareto: PositiveInt = 24
    """Training tasks of the Pareto front; the best text is chosen by their mean."""
    held_out: PositiveInt = 200
    """Tasks of the split eval on which the first and the best text are compared, at most."""

    def settings(self) -> dict[str, Any]:
        """Fields of `EvolutionConfig`."""
        system = "" if self.system is None else read_instruction(self.system)
        names = ("iterations", "minibatch", "pareto", "held_out")
        return {"system": system} | {name: getattr(self, name) for name in names}


DEFAULT_SEARCH_OPTIONS = SearchOptions()


def optimize_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    search_options: SearchOptions = DEFAULT_SEARCH_OPTIONS,
    out: Path | None = None,
    concurrency: PositiveInt = 64,
    json: JsonFlag = False,
) -> None:
    """Improve the system text of an environment's prompts for a policy: reflective prompt evolution (GEPA).

    A reflecting policy reads rollouts with their rewards and writes new texts. One that earns more on the same training
    tasks is kept. The best text is compared with the first one on held-out tasks, and written to best.txt. The same
    command goes on where it was stopped.

    Parameters
    ----------
    out:
        Folder that is written. Default: runs/optimize-ENV-seedN.
    concurrency:
        Rollouts at once.
    """
    with needs_extra("gepa"):
        from wanderlust_optimize.prompt_evolution import BEST_FILE, EvolutionConfig, default_folder, optimize_prompt
    options = answer_options.policy_options(greedy=False)
    config = EvolutionConfig(**search_options.settings(), seed=answer_options.seed)
    folder = out or default_folder(env, config)
    with stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there") as progress:
        resolved = resolve_environment(env)
        writing = replace(options, max_tokens=search_options.reflector_max_tokens)
        if search_options.reflector is not None:
            writing = replace(writing, model=search_options.reflector_model)
        report = optimize_prompt(
            env,
            resolve_policy(policy, resolved.env, options).policy,
            resolve_judge_policy(search_options.reflector or policy, writing).policy,
            config=config,
            out=folder,
            concurrency=concurrency,
            progress=progress,
        )
    best = folder / BEST_FILE
    following = shell_command("eval", f"instructed,file={best},env={env}", "--policy", policy)
    lines = [report.verdict, f"The best text: {best}", "Next:", f"  {following}"]
    show_result(report.as_dict(), *lines, table=report.table(), json=json)
