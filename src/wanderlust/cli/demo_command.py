"""`wander demo`: tic-tac-toe is learnt on this machine, in a run that can be stopped and resumed at any moment."""

from __future__ import annotations

import json as json_format
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import resumable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.train_command import note_next_commands, refuse_existing_run, run_of_recipe
from wanderlust.errors import StoreError, UsageError
from wanderlust.runner.control import serve_control
from wanderlust.runner.progress import Progress
from wanderlust.store.run_folder import REPORT_FILE, RUNS_FOLDER, open_folder, runs_in, shell_command
from wanderlust.training.config import default_workers

if TYPE_CHECKING:
    from wanderlust.recipes.tictactoe import DemoConfig
    from wanderlust.recipes.tictactoe_report import DemoReport


def demo_command(
    *,
    quick: bool = False,
    out: Path | None = None,
    resume: Annotated[list[Path] | None, Parameter(consume_multiple=(0, 1))] = None,
    accept_changes: bool = False,
    previous_state: bool = False,
    seed: int | None = None,
    workers: PositiveInt | None = None,
    json: JsonFlag = False,
) -> None:
    """Teach a small language model tic-tac-toe on this machine's CPU: imitation of a teacher, then reinforcement.

    It takes minutes, can be stopped at any moment, and ends with a table, a learning curve and a checkpoint. A
    finished run is not repeated: its table is shown again.

    Parameters
    ----------
    quick:
        A run of under a minute that only shows that something is learnt.
    out:
        New folder of the run. Default: runs/demo-seedN.
    resume:
        Go on with a run: the one in this folder, or without one the newest unfinished one.
    accept_changes:
        With --resume: go on although the code of the game or its tasks have changed since.
    previous_state:
        With --resume: go on from the state saved before the last one, which is damaged.
    seed:
        Random seed. Default: 0.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    """
    if resume is not None:
        if quick or out is not None or seed is not None:
            raise UsageError("--resume goes on as the run was begun: leave --quick, --out and --seed out")
        folder = resume[0] if resume else _newest_unfinished_demo()
        run_of_recipe(folder, "demo")
    else:
        folder = out or RUNS_FOLDER / f"demo-{'quick-' if quick else ''}seed{seed or 0}"
        if not _is_finished_demo(folder, quick=quick, seed=seed or 0):
            refuse_existing_run(folder, "wander demo")
    with resumable(folder, shell_command("demo", "--resume", folder)) as progress:
        if not (folder / REPORT_FILE).is_file():
            config = None if resume is not None else _demo_config(quick=quick, seed=seed or 0)
            _run_demo(
                folder,
                config,
                progress=progress,
                workers=workers,
                accept_changes=accept_changes,
                previous_state=previous_state,
            )
        report = _demo_report(folder)
    if json:
        print_json({"run": str(folder), **report.as_dict()})
        return
    print_result(report.table())
    files = [f"  {folder / name}" for name in ("curve.png", "report.md", REPORT_FILE)]
    print_result(None, f"{report.wall_s:.0f} seconds. Picture, report and figures:", *files)
    other_seed = shell_command("demo", *(["--quick"] if quick else []), "--seed", str(report.seed + 1))
    note_next_commands("tictactoe", folder, report.checkpoint, other_seed)


def _demo_config(*, quick: bool, seed: int) -> DemoConfig:
    with needs_extra("train"):
        from wanderlust.recipes.tictactoe import FULL_DEMO, QUICK_DEMO
    return replace(QUICK_DEMO if quick else FULL_DEMO, seed=seed)


def _is_finished_demo(folder: Path, *, quick: bool, seed: int) -> bool:
    """Whether the same demo was finished there."""
    run = open_folder(folder)
    if run is None or run.recipe != "demo" or not run.finished:
        return False
    return _load_demo_config(folder) == _demo_config(quick=quick, seed=seed)


def _load_demo_config(folder: Path) -> DemoConfig:
    with needs_extra("train"):
        from wanderlust.recipes.tictactoe import DemoConfig
        from wanderlust.training.checkpoint import load_config
    config: DemoConfig = load_config(folder, DemoConfig)
    return config


def _run_demo(
    folder: Path,
    config: DemoConfig | None,
    *,
    progress: Progress,
    workers: int | None,
    accept_changes: bool,
    previous_state: bool,
) -> None:
    """Begin a run, or without a config open one that exists; do what is left of it, and write its report."""
    with needs_extra("train"):
        from wanderlust.recipes.tictactoe import Demo
        from wanderlust.recipes.tictactoe_report import write_report
        from wanderlust.training.checkpoint import Run
    if config is not None:
        run = Run.begin(folder, config)
    else:
        config = _load_demo_config(folder)
        run = Run.resume(folder, previous_state=previous_state)
    quick = ["--quick"] if config == _demo_config(quick=True, seed=config.seed) else []
    with closing(run.store), serve_control(run.store.path, progress.log_line):
        run.lock(config, command=["demo", *quick, "--seed", str(config.seed)], accept_changes=accept_changes)
        facts = Demo(config, run, logger=progress, workers=workers or default_workers()).run_stages()
    write_report(run.path, facts, seed=config.seed)


def _demo_report(folder: Path) -> DemoReport:
    """The report as it was written."""
    with needs_extra("train"):
        from wanderlust.recipes.tictactoe_report import DemoReport
    try:
        body = json_format.loads((folder / REPORT_FILE).read_text())
        return DemoReport(**{name: body[name] for name in DemoReport.__dataclass_fields__})
    except KeyError as error:
        raise StoreError(f"{folder / REPORT_FILE}: there is no {error} in it") from error
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"cannot read {folder / REPORT_FILE}: {error}") from error


def _newest_unfinished_demo() -> Path:
    """The unfinished run of the demo that was written to last."""
    runs = [run for run in runs_in(RUNS_FOLDER) if run.recipe == "demo"]
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        there = f": finished ones are {', '.join(str(run.path) for run in runs)}" if runs else ""
        raise UsageError(f"there is no unfinished run of the demo in {RUNS_FOLDER}{there}")
    newest = max(unfinished, key=lambda run: run.touched).path
    print_note(f"resuming {newest}")
    return newest
