"""`wander world`: families of scenarios, what happens in one, and how somebody fares in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import set_library_environment
from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import show_result
from wanderlust.cli.world_bench import bench_command
from wanderlust.cli.world_budget import budget_command
from wanderlust.cli.world_files import import_command, verify_command
from wanderlust.cli.world_new import new_world_command
from wanderlust.cli.world_options import (
    DEFAULT_MODEL_OPTIONS,
    PlayerName,
    ScenarioName,
    WorldModelOptions,
    scenario_id,
)
from wanderlust.cli.world_show import print_outcome, show_world
from wanderlust.cli.world_write import review_command, write_command
from wanderlust.environments.assistant_life import AssistantLife, life_with
from wanderlust.policies.resolve import open_policies, resolve_policy
from wanderlust.runner.engine import rollout
from wanderlust.runner.terminal import Table
from wanderlust.types import Policy, Rollout, Task

world = nested(
    "world",
    """Simulated lives: list, show, run and verify scenarios, import files, draw budgets.

    A scenario is family/split-seed/level, as in invite/eval-0/1, or a file of ARE's JSON. A family alone, also as
    file.py:name, is its first scenario of the eval split.""",
)
world.command(show_world, name="show")
world.command(verify_command, name="verify")
world.command(import_command, name="import")
world.command(budget_command, name="budget")
world.command(new_world_command, name="new")
world.command(bench_command, name="bench")
world.command(write_command, name="write")
world.command(review_command, name="review")


@world.command(name="list")
def list_families(universe: str = "sketched", /, *, json: JsonFlag = False) -> None:
    """List the families of scenarios.

    Parameters
    ----------
    universe:
        A kind of universes: sketched or lived.
    """
    families = AssistantLife(universe=universe).families
    table = Table("family", "capability", "asks", "what makes it hard")
    for one in sorted(families, key=lambda one: (one.capability, one.name)):
        table.add_row(one.name, one.capability, one.asks, one.hard)
    rows = [{key: getattr(one, key) for key in ("name", "capability", "asks", "hard")} for one in families]
    line = f"{len(families)} families. Look at one: wander world show {families[0].name}/eval-0/1"
    show_result({"families": rows}, line, table=table, json=json)


@world.command(name="run")
def run_scenario(
    scenario: ScenarioName,
    /,
    *,
    policy: PlayerName = "oracle",
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Run a policy in a scenario: a timeline, and the verdict."""
    set_library_environment()
    name = scenario_id(scenario)
    env = life_with(name)
    task = Task(id=name, prompt=next(iter(env.tasks("eval"))).prompt, info=dict(env.scenario_and_grader(name)[0].info))
    players: dict[str, Callable[[], Policy]] = {**env.players, "oracle": partial(env.oracle, task)}
    player = (
        players[policy]() if policy in players else resolve_policy(policy, env, model_options.policy_options()).policy
    )

    async def played() -> Rollout:
        async with open_policies([player]):
            return await rollout(env, task, player, seed=model_options.seed)

    return print_outcome(asyncio.run(played()), json=json)
