"""The state file of a trainer, for resuming a run.

Which checkpoints of a run stay, and when it may stop early.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import tomllib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Self

import torch

from wanderlust.errors import StoreError, UsageError, one_line, writing
from wanderlust.runner.control import serve_control
from wanderlust.store.provenance import lock_run, provenance_of
from wanderlust.store.run_folder import COMMAND_KEY, CONFIG_FILE, STATE_FILE, STORE_FILE, RunClock
from wanderlust.store.store import RunStore
from wanderlust.store.whole_files import replacing
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.config import ADDRESSES, CONFIG_TOML, TrainConfig

BEST_CHECKPOINT = "best"
START_CHECKPOINT, LAST_CHECKPOINT = "start", "rl"
STEP_CHECKPOINT = "step-{:06}"
SETTINGS_KEY = "settings"
"""Fact of a run's store: the settings that it was begun with."""
SERVICE_PLACE_FILE = "service-weights.txt"
"""File of a run that says where a service keeps the weights that were exported last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPoint:
    """A point of the learning curve, as far as it is needed here."""

    step: int
    value: float


def point_metrics(point: Mapping[str, Any]) -> dict[str, float]:
    """All figures of an evaluation by name: rewards by seat, `reward` of the seats that learn, parts, metrics."""
    return {name: float(estimate["value"]) for name, estimate in point_estimates(point).items()}


def point_estimates(point: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """The same with their intervals: `value`, `low`, `high`."""
    rewards = {name: estimate for name, estimate in point["rewards"].items() if estimate is not None}
    named = {**rewards, "reward": point.get("learning_reward", next(iter(rewards.values()), None))}
    parts = {**point["parts"], **point["metrics"]}
    return {name: estimate for name, estimate in {**parts, **named}.items() if estimate is not None}


def comparable_points(curve: Sequence[Mapping[str, Any]], metric: str) -> list[Mapping[str, Any]]:
    """The examinations whose figure tells of strength: no `reward` where seats that earn differently met each other."""
    if metric == "reward" and any(point.get("opponent") == "" for point in curve):
        return []
    return [point for point in curve if "opponent" in point] or [*curve]


def eval_curve(curve: Sequence[Mapping[str, Any]], metric: str) -> list[EvalPoint]:
    """The figure over the examinations. UsageError, with the names that there are, when no point has it."""
    points = [(int(point["step"]), point_metrics(point)) for point in comparable_points(curve, metric)]
    if points and not any(metric in figures for _, figures in points):
        there = ", ".join(sorted({name for _, figures in points for name in figures}))
        raise UsageError(f"evaluations of this environment have no metric {metric!r}; they have {there}")
    return [EvalPoint(step=step, value=figures[metric]) for step, figures in points if metric in figures]


def best_point(points: Sequence[EvalPoint]) -> EvalPoint | None:
    """The highest; of equals the first."""
    return max(points, key=lambda point: (point.value, -point.step), default=None)


def no_improvement(points: Sequence[EvalPoint], patience: int) -> bool:
    """Whether the last `patience` examinations brought nothing better than what came before them."""
    if not patience or len(points) <= patience:
        return False
    before, since = points[:-patience], points[-patience:]
    return max(p.value for p in since) <= max(p.value for p in before)


async def prune(
    folder: Path,
    curve: Sequence[Mapping[str, Any]],
    *,
    save: Callable[[Path], Awaitable[None]],
    metric: str = "reward",
    keep_last: int = 1,
    patience: int = 0,
) -> bool:
    """Keep what was examined last, by `save`, as far as it is to stay below `folder`; whether the run should go on.

    What stays depends on the curve alone, so a resumed run ends with the same folders. The start of the run is not
    written again.
    """
    examined = eval_curve(curve, metric)
    if not curve:
        return True
    newest, top = int(curve[-1]["step"]), best_point(examined)
    if newest and top is not None and top.step == newest:
        await save(folder / BEST_CHECKPOINT)
    if newest and keep_last:
        await save(folder / STEP_CHECKPOINT.format(newest))
    steps = [int(point["step"]) for point in curve if point["step"]]
    staying = {STEP_CHECKPOINT.format(step) for step in steps[-keep_last:]} if keep_last else set()
    _remove_others(folder, staying)
    return not no_improvement(examined, patience)


def _remove_others(folder: Path, staying: Collection[str]) -> None:
    for old in folder.glob("step-*"):
        if old.name not in staying:
            shutil.rmtree(old)


LOCKED_TASKS = 256
"""Tasks of a split that the digest of a training run covers; a train split may be endless."""
STATE_MAGIC = b"wanderlust-state-2\n"
"""First bytes of a saved state; the SHA-256 of what follows stands after them, in hexadecimal, on a line of its own."""
STATE_HEADER_BYTES = len(STATE_MAGIC) + hashlib.sha256().digest_size * 2 + 1
PREVIOUS_STATE_FILE = "state-previous.pt"
"""The state that was saved before the last one."""
TRAINER_FOLDER = "trainer"
"""Folder of the trainer's own states, beside the states that each name one of them."""


class DamagedState(StoreError):
    """A saved state is not what was written."""


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain data with their checksum; the file is the old or the new one, whenever power fails."""
    with writing(path), replacing(path, durable=True) as draft, draft.open("w+b") as file:
        file.write(bytes(STATE_HEADER_BYTES))
        torch.save(state, file)
        file.seek(STATE_HEADER_BYTES)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        file.write(_state_header(digest))


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote, without running any code in it. StoreError when one byte of it is another."""
    try:
        with path.open("rb") as file:
            _check_header(path, file)
            state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        why = one_line(str(error) or type(error).__name__)
        raise DamagedState(f"cannot read the state {path}: {why}; it was left as it is") from error
    return dict(state)


def _state_header(digest: str) -> bytes:
    return STATE_MAGIC + digest.encode() + b"\n"


def _check_header(path: Path, file: BufferedReader) -> None:
    """Compare the content with its checksum, and go to its beginning. Raises DamagedState."""
    header = file.read(STATE_HEADER_BYTES)
    if header[: len(STATE_MAGIC)] != STATE_MAGIC:
        raise DamagedState(f"{path} is not a state of this version of the library, or damaged; it was left as it is")
    if header != _state_header(hashlib.file_digest(file, "sha256").hexdigest()):
        raise DamagedState(f"{path} is damaged: its checksum is another one; it was left as it is")
    file.seek(STATE_HEADER_BYTES)


def state_digests(path: Path) -> dict[str, str]:
    """SHA-256 of every file of a trainer's state, a file or a folder, by its name below the state's folder."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digests = {}
    for file in files:
        with file.open("rb") as opened:
            digests[file.relative_to(path.parent).as_posix()] = hashlib.file_digest(opened, "sha256").hexdigest()
    return digests


@dataclass(slots=True)
class Run:
    """An open run: its folder, its store (this process is the one writer) and the last saved state, if any."""

    path: Path
    store: RunStore
    state: dict[str, Any] | None = None
    clock: RunClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = RunClock(self.store)

    @classmethod
    def begin(cls, path: Path, config: Any) -> Self:
        """A new folder. UsageError when there is something at `path` already: nothing is overwritten."""
        if path.exists():
            raise UsageError(f"{path} exists already: resume it, or choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.mkdir()
        write_config(draft, config)
        draft.rename(path)  # so that a folder at `path` always has its config
        return cls(path, RunStore.create(path / STORE_FILE))

    @classmethod
    def resume(cls, path: Path, *, previous_state: bool = False) -> Self:
        """An existing folder, with the last state that was saved in it, or the one before, which takes its place.

        Raises StoreError, which names the file, when a byte of the state or of the trainer's state has changed.
        """
        if previous_state:
            _load_checked(path, PREVIOUS_STATE_FILE)
            copy_file(path / PREVIOUS_STATE_FILE, path / STATE_FILE)
        state = _load_checked(path, STATE_FILE) if (path / STATE_FILE).exists() else None
        store_path = path / STORE_FILE
        return cls(path, RunStore.open(store_path) if store_path.exists() else RunStore.create(store_path), state)

    def lock(self, config: Any, *, command: Sequence[str] = (), accept_changes: bool = False) -> list[str]:
        """Write or compare `wander.lock`, and have the store mark what is played from now on; returns what has changed.

        Of the tasks count the first LOCKED_TASKS of the `train` split and those that are evaluated. Raises UsageError
        that names what has changed, unless `accept_changes`.
        """
        env = config.make_env()
        tasks = [*islice(iter_tasks(env, "train"), LOCKED_TASKS), *choose_tasks(iter_tasks(env, "eval"), LOCKED_TASKS)]
        made_by, settings = provenance_of(env, tasks=tasks), config.as_dict()
        changed = lock_run(
            self.path, made_by, settings=settings, command=command or None, accept_changes=accept_changes
        )
        self.store.provenance = made_by.digest
        return changed

    def save(self, state: dict[str, Any]) -> None:
        """Save a state to resume from; the last one stays as the previous one. Older trainer states are removed.

        `state["trainer"]` names the trainer's own state, which must have been written before.
        """
        folder = self.path / TRAINER_FOLDER
        if self.state is not None and (self.path / STATE_FILE).exists():
            copy_file(self.path / STATE_FILE, self.path / PREVIOUS_STATE_FILE)
        needed = {one["trainer"] for one in (self.state, state) if one is not None}
        save_state(self.path / STATE_FILE, {**state, "digests": state_digests(folder / state["trainer"])})
        self.state = state
        for old in folder.iterdir():
            if old.name not in needed:
                shutil.rmtree(old) if old.is_dir() else old.unlink()


@contextmanager
def open_run(
    folder: Path,
    config: Any,
    *,
    note: Callable[[str], None],
    command: Sequence[str] = (),
    previous_state: bool = False,
    accept_changes: bool | None = None,
) -> Iterator[Run]:
    """The run in the folder, begun or gone on with; inside, others may pause it, which is told to `note`.

    Raises UsageError where somebody has edited its settings since it began, unless `accept_changes`; None where the
    recipe has no such choice.
    """
    settings = json.loads(json.dumps(config.as_dict()))
    if folder.exists():
        run = Run.resume(folder, previous_state=previous_state)
        if edits := _edits(run, settings):
            if not accept_changes:
                run.store.close()
                accept = "" if accept_changes is None else ", or accept it (--accept-changes, or accept_changes=True)"
                raise UsageError(f"{folder}: {'; '.join(edits)}: undo the edit, or begin another run{accept}")
            note(f"accepted edits: {'; '.join(edits)}")
        write_config(folder, config)
    else:
        run = Run.begin(folder, config)
        if command:
            run.store.set_meta(COMMAND_KEY, tuple(command))
    if run.store.meta().get(SETTINGS_KEY) != settings:
        run.store.set_meta(SETTINGS_KEY, settings)
    with closing(run.store), serve_control(run.store.path, note):
        yield run


def _edits(run: Run, settings: Mapping[str, Any]) -> list[str]:
    """What the files of settings say and the run was not begun with; addresses of servers may change."""
    before, texts = run.store.meta().get(SETTINGS_KEY, {}), [(CONFIG_FILE, settings)]
    if (table := run.path / CONFIG_TOML).is_file():
        try:
            sections = tomllib.loads(table.read_text("utf-8")).values()
            texts.append((CONFIG_TOML, {name: value for one in sections for name, value in one.items()}))
        except (ValueError, AttributeError) as error:
            return [f"{CONFIG_TOML} cannot be read: {error}"]
    return [
        f"{name} of {file} was {before[name]} and is {value}"
        for file, now in texts
        for name, value in now.items()
        if name in before and name not in ADDRESSES and before[name] != value
    ]


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; the target is the old or the new one, whenever power fails."""
    with writing(target), replacing(target, durable=True) as draft:
        shutil.copyfile(source, draft)


def _check_digests(folder: Path, name: str, digests: Mapping[str, str]) -> None:
    """Compare the files of a trainer's state with what was written. Raises DamagedState, which names the first."""
    found = state_digests(folder / name)
    for file in sorted(digests.keys() | found.keys()):
        if digests.get(file) != found.get(file):
            raise DamagedState(
                f"{folder / file} is damaged or missing: its checksum is another one; it was left as it is"
            )


def _load_checked(folder: Path, name: str) -> dict[str, Any]:
    """The state of that name, whose trainer's state is whole. Raises StoreError that offers the previous state."""
    try:
        if not (folder / name).exists():
            raise StoreError(f"{folder} has no {name}: no second state was saved yet; begin anew")
        state = load_state(folder / name)
        _check_digests(folder / TRAINER_FOLDER, state["trainer"], state["digests"])
    except DamagedState as error:
        if name == STATE_FILE and (folder / PREVIOUS_STATE_FILE).exists():
            raise DamagedState(f"{error}; the state saved before it is kept: resume with --previous-state") from error
        raise DamagedState(f"{error}; no other state is left: begin anew") from error
    return state


def recipe_of(kind: type[Any]) -> str:
    """The word for the runs that a configuration is of: `train` for TrainConfig, `finetune` for FinetuneConfig."""
    return kind.__name__.removesuffix("Config").lower()


def write_config(folder: Path, config: Any) -> None:
    """Write the config of a run into its folder, where it differs; each file is the old or the new one."""
    body = {"recipe": recipe_of(type(config)), "config": config.as_dict()}
    texts = {CONFIG_FILE: json.dumps(body, indent=2) + "\n"}
    if isinstance(config, TrainConfig):
        texts[CONFIG_TOML] = config.to_toml()
    for name, text in texts.items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            with replacing(file) as draft:
                draft.write_text(text)


def load_config(path: Path, kind: type[Any]) -> Any:
    """The config a run was begun with. Raises UsageError when there is no such run."""
    file = path / CONFIG_FILE
    if not file.is_file():
        others = sorted(p.parent.name for p in path.parent.glob(f"*/{CONFIG_FILE}"))
        there = f"; there are {', '.join(others[:8])}" if others else ""
        raise UsageError(f"{path} is no run: it has no {CONFIG_FILE}{there}")
    try:
        body = json.loads(file.read_text())
        if body["recipe"] != recipe_of(kind):
            raise UsageError(f"{path} is a run of another recipe ({body['recipe']})")
        return kind.from_dict(body["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error


def check_same_run(folder: Path, config: Any) -> None:
    """Raises UsageError when the run in the folder has other settings; addresses of servers may change."""
    stored, asked = load_config(folder, type(config)).as_dict(), config.as_dict()
    stored |= {name: asked[name] for name in ADDRESSES if name in asked}
    other = [f"{name} was {stored[name]} and is {value}" for name, value in asked.items() if stored[name] != value]
    if other:
        raise UsageError(f"{folder} holds another run ({'; '.join(other)}): choose another folder")
