"""A run's folder: what is in it, readable without the packages that wrote it, and the command that plays it again.

Games that a person played, or that went on from a moment of a world, are kept in runs of their own, one per setting.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from pathlib import Path
from re import sub
from time import monotonic
from typing import Any

from wanderlust.errors import StoreError, UsageError
from wanderlust.store.reader import RolloutRow
from wanderlust.store.store import RunStore
from wanderlust.store.whole_files import PARTIAL, replacing, write_whole
from wanderlust.types import Group, Rollout

CONFIG_FILE, STORE_FILE, STATE_FILE, REPORT_FILE, CHECKPOINTS_FOLDER = (
    "run.json",
    "rollouts.db",
    "state.pt",
    "report.json",
    "checkpoints",
)
RUNS_FOLDER = Path("runs")
"""Default folder of runs."""
COMMAND_KEY = "command"
"""The fact of a store that holds the words its run was begun by, without the program's name and its folder."""
PASS_THRESHOLD_KEY = "pass_threshold"
"""The fact of an evaluation's store that holds the smallest reward that its report counts as passed."""
EVALUATION_RECIPE = "eval"
"""The recipe that the folder of an evaluation names."""
PLAY_RECIPE = "play"
"""The recipe that the folder of games names which a person played."""
OFFLINE_COMMANDS = {"sft": "sft", "dpo": "dpo", "reward": "reward-model"}
"""The command of each method of offline training."""
REWARD_MODEL_SUFFIX = "ForSequenceClassification"
"""How `transformers` names the classes of models with a head for scores."""
FRESH_POLICY = "fresh"
"""Name of a new, untrained model in place of a checkpoint."""
SMOLLM2_POLICY = "smollm2"
"""Name of the pretrained model that comes in a package."""


def begin_with_settings(file: Path, settings: Mapping[str, Any], *, what: str) -> None:
    """Write what a folder holds into `file`, or compare it with what is there; `what` names it in messages.

    Raises UsageError when the folder holds something else, StoreError when it cannot be written.
    """
    folder = file.parent
    if file.is_file():
        stored = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name, value in settings.items() if stored.get(name) != value]
        if changed:
            other = "; ".join(f"{name} was {stored.get(name)} and is {settings[name]}" for name in changed)
            raise UsageError(f"{folder} holds another {what} ({other}): choose another folder")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} exists already: choose another folder")
    write_whole(file, json.dumps(settings, indent=1) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """One run on disk."""

    path: Path
    recipe: str
    """demo, train, finetune, eval or play."""
    config: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether its report was written, which every recipe does last."""
        return (self.path / REPORT_FILE).is_file()

    @property
    def touched(self) -> float:
        """When something in it was last written, in seconds of the file system's clock."""
        return max(file.stat().st_mtime for file in (self.path, *self.path.iterdir()))

    def describe_progress(self) -> str:
        """The stage it is in and the steps done there, `nothing yet` before the first one."""
        store = self.path / STORE_FILE
        if not store.is_file():
            return "nothing yet"
        with RunStore.read(store) as reader:
            for stage in ("rl", "dpo", "sft", "reward"):
                if values := reader.metrics(stage, "loss"):
                    of = self.steps(stage)
                    return f"{stage} {values[-1][0] + 1}" + (f" of {of}" if of else "")
            last = reader.rollouts(order="-id", limit=1)
        return last[0].stage if last else "nothing yet"

    def steps(self, stage: str) -> int:
        """Steps that a stage is to have; 0 where the settings do not say."""
        steps = self.config.get("sft_steps" if stage == "sft" else "steps")
        return steps if isinstance(steps, int) else 0  # those of offline training follow from its data

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "path": str(self.path),
            "recipe": self.recipe,
            "reached": self.describe_progress(),
            "finished": self.finished,
            "seed": self.config.get("seed"),
        }


def open_folder(path: Path) -> RunFolder | None:
    """The run at `path`, None when there is none. Raises StoreError when its settings cannot be read."""
    file = path / CONFIG_FILE
    if not file.is_file():
        return None
    try:
        body = json.loads(file.read_text())
        return RunFolder(path=path, recipe=str(body["recipe"]), config=dict(body["config"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"cannot read {file}: {type(error).__name__}: {error}") from error


def runs_in(root: Path) -> Iterator[RunFolder]:
    """The readable runs directly in `root`, by name."""
    for file in sorted(root.glob(f"*/{CONFIG_FILE}")):
        try:
            folder = open_folder(file.parent)
        except StoreError:  # whoever lists runs wants the others
            continue
        if folder is not None:
            yield folder


def runs_beside(path: Path) -> list[str]:
    """Paths of the runs around a path that is none, and of those where runs usually lie."""
    roots = dict.fromkeys((path.parent, RUNS_FOLDER))
    return [str(file.parent) for root in roots for file in sorted(root.glob(f"*/{CONFIG_FILE}"))]


def checkpoints_of(path: Path) -> list[Path]:
    """The checkpoint folders of a run, the one to use first: what its report hands out, else `rl`, else the newest."""
    folders = [
        file.parent for file in (path / CHECKPOINTS_FOLDER).glob("*/config.json") if file.parent.suffix != PARTIAL
    ]
    try:
        handed_out = str(json.loads((path / REPORT_FILE).read_text())["policy_checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):  # unfinished, or of another recipe
        handed_out = "rl"
    return sorted(folders, key=lambda p: (p.name != handed_out, p.name != "rl", -p.stat().st_mtime))


def is_reward_model(folder: Path) -> bool:
    """Whether a checkpoint folder holds a model that scores texts, and writes none."""
    try:
        architectures = json.loads((folder / "config.json").read_text()).get("architectures") or ()
    except (OSError, ValueError, AttributeError):
        return False
    return any(str(name).endswith(REWARD_MODEL_SUFFIX) for name in architectures)


def training_command_words(
    env: str, policy: str, *, preset: str | None, options: Any, defaults: Any
) -> tuple[str, ...]:
    """The words after `wander` that begin a training run: where it starts, and the options that are not the default."""
    start = ["--preset", preset] if preset else [env, "--policy", policy]
    default = asdict(defaults)
    changed = {name: value for name, value in asdict(options).items() if value != default[name]}
    return ("train", *start, *option_words(changed))


def option_words(given: Mapping[str, Any]) -> list[str]:
    """The words of options with their values; one that is True stands alone."""
    words = ([f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])] for name, value in given.items())
    return [*chain.from_iterable(words)]


PLAY_STAGE = "play"
BRANCH_STAGE = "from"
"""Setting that names the run from which another one branched."""
HUMAN_POLICY = "hand"
"""Name of a person in place of a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollout:
    """Folder and number of a stored rollout."""

    folder: Path
    id: int


def save_played_rollout(rollout: Rollout, folder: Path, *, env: str, settings: Mapping[str, Any]) -> StoredRollout:
    """Add a game to the run in `folder`, which is made when there is none. `settings` are what the run says of itself.

    Raises StoreError when somebody else is writing there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CONFIG_FILE).exists():
        with replacing(folder / CONFIG_FILE) as draft:
            draft.write_text(json.dumps({"recipe": PLAY_RECIPE, "config": dict(settings)}, indent=2) + "\n")
    path = folder / STORE_FILE
    with RunStore.open(path) if path.exists() else RunStore.create(path) as store:
        last = store.rollouts({"stage": PLAY_STAGE}, order="-group", limit=1)
        index = last[0].group + 1 if last else 0
        store.sink(stage=PLAY_STAGE, step=0, env=env)([Group(task=rollout.task, rollouts=[rollout], index=index)])
        (row,) = store.rollouts({"stage": PLAY_STAGE, "group": index})
    (folder / REPORT_FILE).write_text(json.dumps({"played": index + 1}) + "\n")
    return StoredRollout(folder=folder, id=row.id)


def folder_for(root: Path, name: str, settings: Mapping[str, Any]) -> Path:
    """The folder in `root` for games with these settings: `play-NAME`, and with a number where others took that."""
    slug = sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "game"
    for number in count(1):
        folder = root / (slug if number == 1 else f"{slug}-{number}")
        if not folder.exists():
            return folder
        run = open_folder(folder) if folder.is_dir() else None
        if run is not None and run.recipe == PLAY_RECIPE and dict(run.config) == dict(settings):
            return folder
    raise AssertionError("numbers do not end")


def shell_command(*words: str | Path) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(["wander", *map(str, words)])


EVALUATION_STAGE = "eval"


DEFAULTS = (("seats", ""), ("seed", 0), ("samples", 1), ("pass_threshold", 1.0))
"""Settings of an evaluation that its command leaves out."""


def format_eval_command(settings: Mapping[str, Any], **more: Any) -> str:
    """The command with these settings; those that are None or False are left out, and what is the default."""
    told = {name: value for name, value in {**settings, **more}.items() if value is not None and value is not False}
    given = {name: value for name, value in told.items() if name != "env" and (name, value) not in DEFAULTS}
    return shell_command("eval", str(settings["env"]), *option_words(given))


def find_evaluation(path: Path) -> tuple[Path, Mapping[str, Any]]:
    """The store of a run and the settings it was made with; `path` is the run's folder or the store itself.

    Raises UsageError when nothing is there, and StoreError for a folder without rollouts.
    """
    folder = path.parent if path.is_file() else path
    run = open_folder(folder)
    store = path if path.is_file() else folder / STORE_FILE
    if not path.exists():
        raise UsageError(f"{path}: there is no run here")
    if not store.is_file():
        raise StoreError(f"{path}: there is no run here" if run is None else f"{path}: nothing was played yet")
    return store, run.config if run is not None and run.recipe in (EVALUATION_RECIPE, PLAY_RECIPE) else {}


def replay_command(rollout: Rollout, row: RolloutRow, settings: Mapping[str, Any]) -> str | None:
    """The command that plays a rollout again; None where the run does not say how, or a person played."""
    if "env" not in settings or settings.get("policy") == HUMAN_POLICY or BRANCH_STAGE in settings:
        return None
    only = f"{row.task}#{row.sample_index}"
    return format_eval_command({**settings, "num_tasks": None, "samples": None, "task": only, "seed": rollout.seed})


SECONDS_KEY = "seconds"
"""The fact of a store that holds the seconds."""
RECORD_SECONDS = 1.0
"""A kill loses at most the time since a step or, of an evaluation, this many seconds."""


@dataclass(slots=True)
class RunClock:
    """Counts from now on, beginning with what earlier parts of the run took."""

    store: RunStore
    before: float = field(init=False)
    """Seconds of the parts before."""
    _began: float = field(init=False)
    _recorded: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.before, self._began = float(self.store.meta().get(SECONDS_KEY, 0.0)), monotonic()

    def record(self, *, at_once: bool = True) -> float:
        """Keep what the run took so far, and return it; unless `at_once`, only now and then."""
        part = monotonic() - self._began
        if at_once or part - self._recorded >= RECORD_SECONDS:
            self._recorded = part
            self.store.set_meta(SECONDS_KEY, round(self.before + part, 3))
        return self.before + part
