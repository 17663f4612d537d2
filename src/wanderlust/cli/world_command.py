"""`wander world`: families of scenarios, what happens in one, and how somebody fares in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from wanderlust.cli.long_commands import set_library_environment
from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import print_json, print_result
from wanderlust.cli.world_bench import bench_command
from wanderlust.cli.world_budget import budget_command
from wanderlust.cli.world_files import import_command, verify_command
from wanderlust.cli.world_new import new_world_command
from wanderlust.cli.world_options import (
    BudgetOptions,
    VerifyOptions,
    WorldCommand,
    WorldModelOptions,
    WorldOptions,
    scenario_id,
)
from wanderlust.cli.world_show import print_outcome, show_world
from wanderlust.cli.world_write import review_command, write_command
from wanderlust.environments.assistant_life import AssistantLife, life_with
from wanderlust.errors import UsageError, nearest_names
from wanderlust.policies.resolve import open_policies, resolve_policy
from wanderlust.runner.engine import rollout
from wanderlust.runner.terminal import Table
from wanderlust.types import Policy, Rollout, Task

DEFAULT_WORLD_OPTIONS, DEFAULT_MODEL_OPTIONS, DEFAULT_VERIFY_OPTIONS, DEFAULT_BUDGET_OPTIONS = (
    WorldOptions(),
    WorldModelOptions(),
    VerifyOptions(),
    BudgetOptions(),
)


def world_command(
    verb: str,
    /,
    *arguments: str,
    options: WorldOptions = DEFAULT_WORLD_OPTIONS,
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    verify_options: VerifyOptions = DEFAULT_VERIFY_OPTIONS,
    budget_options: BudgetOptions = DEFAULT_BUDGET_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Simulated lives: list their families, show a scenario, run a policy in one, verify, import, and more.

    `world list`; `world show SCENARIO`; `world show RUN ROLLOUT`; `world run SCENARIO --policy NAME`;
    `world verify SCENARIO`, which plays the oracle and tests the verifier on it; `world verify SCENARIO --log FILE`;
    `world verify RUN ROLLOUT`; `world import FILE...`; `world budget RUN`; `world new family|app|persona NAME`,
    which writes a folder that works and has a test; `world bench life --policy NAME --out FOLDER`, which plays all
    tasks of eval three times and reports by capability beside the environment's players and any `--player
    NAME=POLICY`; `world write --policy NAME --out FOLDER`, which has a model draft stories, or with `--reword
    SCENARIO` reword mails and messages, and `world review FOLDER [DRAFT [accept|reject|comment]]`, after
    which `life,families=FOLDER` plays those that were accepted. A scenario is
    family/split-seed/level, as in invite/eval-0/1, or a file of ARE's JSON; a family alone, also as file.py:name, is
    its first scenario of the eval split. Files of rows (.jsonl, .parquet) are imported row by row.

    `verify` exits with 0 when the log is accepted, 1 when it is rejected, 3 when only a judge could tell.

    Parameters
    ----------
    verb:
        list, show, run, verify, import, budget, new, bench, write or review.
    arguments:
        A scenario, a family, a file, or a run's folder and the number of a rollout; for list, a kind of universes.
    """
    if verb not in WORLD_VERBS:
        raise UsageError(f"wander world cannot {verb!r}; {nearest_names(verb, [*WORLD_VERBS], kind='it can')}")
    least, most, example = ARGUMENT_COUNTS[verb]
    if len(arguments) < least:
        raise UsageError(f"wander world {verb} needs {example}")
    if len(arguments) > most:
        raise UsageError(f"wander world {verb} takes no further {arguments[-1]!r}; it takes {example}")
    return WORLD_VERBS[verb](
        WorldCommand(
            arguments=arguments,
            options=options,
            model_options=model_options,
            verify_options=verify_options,
            budget_options=budget_options,
            json=json,
        )
    )


def _list(command: WorldCommand) -> int:
    families = AssistantLife(universe=command.arguments[0] if command.arguments else "sketched").families
    if command.json:
        print_json({"families": [{k: getattr(f, k) for k in ("name", "capability", "asks", "hard")} for f in families]})
        return 0
    table = Table("family", "capability", "asks", "what makes it hard")
    for one in sorted(families, key=lambda one: (one.capability, one.name)):
        table.add_row(one.name, one.capability, one.asks, one.hard)
    print_result(table, f"{len(families)} families. Look at one: wander world show {families[0].name}/eval-0/1")
    return 0


def _run(command: WorldCommand) -> int:
    set_library_environment()
    name, policy_name = scenario_id(command.first_argument), command.options.policy
    env = life_with(name)
    task = Task(id=name, prompt=next(iter(env.tasks("eval"))).prompt, info=dict(env.scenario_and_grader(name)[0].info))
    players: dict[str, Callable[[], Policy]] = {**env.players, "oracle": partial(env.oracle, task)}
    policy = (
        players[policy_name]()
        if policy_name in players
        else resolve_policy(policy_name, env, command.model_options.policy_options()).policy
    )

    async def played() -> Rollout:
        async with open_policies([policy]):
            return await rollout(env, task, policy, seed=command.model_options.seed)

    return print_outcome(asyncio.run(played()), command)


WORLD_VERBS: Mapping[str, Callable[[WorldCommand], int]] = {
    "list": _list,
    "show": show_world,
    "run": _run,
    "verify": verify_command,
    "import": import_command,
    "budget": budget_command,
    "new": new_world_command,
    "bench": bench_command,
    "write": write_command,
    "review": review_command,
}
"""Commands of `wander world`."""
SCENARIO_HELP = "a scenario, as in invite/eval-0/1"
ARGUMENT_COUNTS: Mapping[str, tuple[int, float, str]] = {
    "list": (0, 1, "nothing, or a kind of universes"),
    "show": (1, 2, f"{SCENARIO_HELP}, or a run and the number of a rollout"),
    "run": (1, 1, SCENARIO_HELP),
    "verify": (1, 3, f"{SCENARIO_HELP}, or a file, or a run and the number of a rollout, or both"),
    "import": (1, inf, "files of ARE's JSON, or rows of them in .jsonl or .parquet"),
    "budget": (1, 1, "the folder of an evaluation"),
    "new": (2, 2, "family, app or persona, and a name"),
    "bench": (0, 1, "an environment of generated scenarios, as life,levels=2"),
    "write": (0, 0, "nothing"),
    "review": (1, 3, "a folder of drafts, and a draft and what to do with it: accept, reject or comment"),
}
"""How many words each of them takes at least and at most, and which."""
