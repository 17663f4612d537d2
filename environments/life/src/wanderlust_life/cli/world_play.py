"""`wander world list`, `run` and `bench`: families of scenarios, and how somebody fares in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import DEFAULT_PRICES, JsonFlag, PositiveInt, PriceOptions
from wanderlust.cli.output import print_json, print_note, print_result, show_result
from wanderlust.errors import UsageError
from wanderlust.policies.resolve import open_policies, resolve_policy
from wanderlust.runner.engine import rollout
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import shell_command
from wanderlust.types import Policy, Rollout, Task
from wanderlust_life.assistant_life import AssistantLife, life_with, scenario_id
from wanderlust_life.world_benchmark import PAGE_FILE, run_world_benchmark
from wanderlust_worlds.cli.world_options import DEFAULT_MODEL_OPTIONS, WorldModelOptions
from wanderlust_worlds.cli.world_show import print_outcome

ScenarioName = Annotated[
    str, Parameter(help="A scenario, as in invite/eval-0/1, a family, whose first one it is, or a file of ARE's JSON.")
]
PlayerName = Annotated[
    str, Parameter(help="oracle, planner, greedy, nothing, an endpoint's URL, a checkpoint, or a script.")
]
OutFolder = Annotated[Path, Parameter(help="Folder of the rollouts and the report; the same command goes on in it.")]
FurtherPlayers = Annotated[tuple[str, ...], Parameter(help="A further player as NAME=POLICY; may be given again.")]


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


def bench_command(
    env: str = "life",
    /,
    *,
    policy: PlayerName = "oracle",
    out: OutFolder,
    samples: PositiveInt = 3,
    player: FurtherPlayers = (),
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    prices: PriceOptions = DEFAULT_PRICES,
    json: JsonFlag = False,
) -> int:
    """Play all tasks of eval several times: figures by capability, beside the environment's players.

    The exit code is 1 where rollouts failed.

    Parameters
    ----------
    env:
        An environment of generated scenarios, as in life,levels=2.
    samples:
        Runs of every task.
    """
    players = dict(_named(one) for one in player)
    words = [env, "--policy", policy, "--samples", str(samples), "--out", str(out)]
    words += [word for one in player for word in ("--player", one)]
    resume = f"stopped; finished work is saved; resume with: {shell_command('world', 'bench', *words)}"
    with stoppable(lambda: resume) as progress:
        result = run_world_benchmark(
            env,
            policy,
            out=out,
            samples=samples,
            options=model_options.policy_options(),
            prices=prices.prices(),
            players=players,
            announce=lambda expected: print_note(str(expected)),
            progress=progress,
        )
    if json:
        print_json(result.as_dict())
    else:
        *tables, last = result.tables()
        for table in tables:
            print_result(table)
        for remark in result.calibration.remarks.values():
            print_note(remark)
        print_result(last, f"The report is {out / PAGE_FILE}.")
    return 1 if result.report.incomplete else 0


def _named(text: str) -> tuple[str, str]:
    """A further player's name and policy. UsageError for a text of another form."""
    name, given, policy = text.partition("=")
    if not name or not given or not policy:
        raise UsageError(f"--player takes NAME=POLICY, as in small=runs/train-life-seed0, not {text!r}")
    return name, policy
