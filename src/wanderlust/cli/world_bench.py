"""`wander world bench`: a policy on all generated scenarios, several times, as one report."""

from __future__ import annotations

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.world_options import WorldCommand
from wanderlust.errors import UsageError
from wanderlust.recipes.world_benchmark import PAGE_FILE, run_world_benchmark
from wanderlust.store.run_folder import shell_command


def bench_command(command: WorldCommand) -> int:
    """Play, and print the report. The exit code is 1 where rollouts failed."""
    options = command.options
    if options.out is None:
        raise UsageError("wander world bench needs --out FOLDER, which keeps the rollouts and goes on where it stopped")
    env = command.arguments[0] if command.arguments else "life"
    players = dict(_named(one) for one in options.player)
    words = [env, "--policy", options.policy, "--samples", str(options.samples), "--out", str(options.out)]
    words += [word for one in options.player for word in ("--player", one)]
    resume = f"stopped; finished work is saved; resume with: {shell_command('world', 'bench', *words)}"
    with stoppable(lambda: resume) as progress:
        result = run_world_benchmark(
            env,
            options.policy,
            out=options.out,
            samples=options.samples,
            options=command.model_options.policy_options(),
            prices=command.budget_options.prices(),
            players=players,
            announce=lambda expected: print_note(str(expected)),
            progress=progress,
        )
    if command.json:
        print_json(result.as_dict())
    else:
        *tables, last = result.tables()
        for table in tables:
            print_result(table)
        for remark in result.calibration.remarks.values():
            print_note(remark)
        print_result(last, f"The report is {options.out / PAGE_FILE}.")
    return 1 if result.report.incomplete else 0


def _named(text: str) -> tuple[str, str]:
    """A further player's name and policy. UsageError for a text of another form."""
    name, given, policy = text.partition("=")
    if not name or not given or not policy:
        raise UsageError(f"--player takes NAME=POLICY, as in small=runs/train-life-seed0, not {text!r}")
    return name, policy
