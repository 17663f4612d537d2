"""`wander demo`: tic-tac-toe is learnt on this machine, in a run that can be stopped and resumed at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import resumable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.train_command import note_next_commands, refuse_existing_run, run_of_recipe
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import REPORT_FILE, RUNS_FOLDER, RunFolder, open_folder, runs_in, shell_command
from wanderlust.training.presets import DEMO, QUICK_DEMO

OLD_RECIPE = "demo"
"""The recipe of the demo's runs before it was one of `wander train`; they are shown, and do not go on."""
OF_A_RUN = ("seed", "policy", "device", "precision")
"""Settings in which runs of the demo differ."""


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
        quick = _is_quick(folder)
    else:
        config = (QUICK_DEMO if quick else DEMO).replace(seed=seed or 0)
        folder = out or RUNS_FOLDER / f"demo-{'quick-' if quick else ''}seed{config.seed}"
        if not _is_finished(folder, quick=quick, seed=config.seed):
            refuse_existing_run(folder, "wander demo")
    with resumable(folder, shell_command("demo", "--resume", folder)) as progress:
        with needs_extra("train"):
            from wanderlust.cli.demo_report import DEMO_CURVE, DEMO_PAGE, DEMO_REPORT, stored_report, write_report
            from wanderlust.training.train import resume_training, train
        if resume is None and not folder.exists():
            words = ["demo", *(["--quick"] if quick else []), "--seed", str(config.seed)]
            train(
                config.env, config.policy, config=config, out=folder, workers=workers, progress=progress, command=words
            )
        elif not (folder / REPORT_FILE).is_file():
            resume_training(
                folder,
                workers=workers,
                progress=progress,
                accept_changes=accept_changes,
                previous_state=previous_state,
            )
        report = stored_report(folder) or write_report(folder)
    if json:
        print_json({"run": str(folder), **report.as_dict()})
        return
    print_result(report.table())
    files = [f"  {folder / name}" for name in (DEMO_CURVE, DEMO_PAGE, DEMO_REPORT) if (folder / name).is_file()]
    print_result(None, f"{report.wall_s:.0f} seconds. Picture, report and figures:", *files)
    other_seed = shell_command("demo", *(["--quick"] if quick else []), "--seed", str(report.seed + 1))
    note_next_commands("tictactoe", folder, report.checkpoint, other_seed)


def _is_quick(folder: Path) -> bool:
    """Whether a run of the demo that can go on, or is finished, is the quick one. UsageError where it is neither."""
    run = open_folder(folder)
    if run is not None and run.recipe == OLD_RECIPE:
        if not run.finished:
            raise UsageError(f"{folder} was begun by an earlier version, whose demo cannot go on: begin another one")
        return run.config.get("steps") == QUICK_DEMO.steps
    run = run_of_recipe(folder, "train")
    if not _is_demo(run):
        raise UsageError(f"{folder} is a run of another recipe (train): resume it with wander train --resume {folder}")
    return bool(run.config["steps"] == QUICK_DEMO.steps)


def _is_demo(run: RunFolder) -> bool:
    """Whether a training run has the settings of one of the presets."""
    presets = [one.as_dict() for one in (DEMO, QUICK_DEMO)]
    return any(all(run.config.get(name) == own[name] for name in own if name not in OF_A_RUN) for own in presets)


def _is_finished(folder: Path, *, quick: bool, seed: int) -> bool:
    """Whether the same demo was finished there."""
    run = open_folder(folder)
    same = run is not None and run.finished and (run.recipe == OLD_RECIPE or _is_demo(run))
    return run is not None and same and run.config.get("seed") == seed and _is_quick(folder) == quick


def _newest_unfinished_demo() -> Path:
    """The unfinished run of the demo that was written to last."""
    runs = [run for run in runs_in(RUNS_FOLDER) if run.recipe == "train" and _is_demo(run)]
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        there = f": finished ones are {', '.join(str(run.path) for run in runs)}" if runs else ""
        raise UsageError(f"there is no unfinished run of the demo in {RUNS_FOLDER}{there}")
    newest = max(unfinished, key=lambda run: run.touched).path
    print_note(f"resuming {newest}")
    return newest
