"""`wander world bench`: a policy on all generated scenarios, several times, as one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import DEFAULT_PRICES, JsonFlag, PositiveInt, PriceOptions
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.world_options import (
    DEFAULT_MODEL_OPTIONS,
    PlayerName,
    WorldModelOptions,
)
from wanderlust.errors import UsageError
from wanderlust.recipes.world_benchmark import PAGE_FILE, run_world_benchmark
from wanderlust.store.run_folder import shell_command

OutFolder = Annotated[Path, Parameter(help="Folder of the rollouts and the report; the same command goes on in it.")]
FurtherPlayers = Annotated[tuple[str, ...], Parameter(help="A further player as NAME=POLICY; may be given again.")]


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
