"""A plan of training data: sources, filters, teachers and budget, in one TOML file or one tree of dataclasses."""
# No `from __future__ import annotations`: `read_plan` reads these types.

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from wanderlust.environment import Environment
from wanderlust.errors import UsageError, nearest_names
from wanderlust.types import Policy

DuplicateKind: TypeAlias = Literal["exact", "fuzzy", "slots"]
OutputFormat: TypeAlias = Literal["sft", "dpo", "rl"]
Verifier: TypeAlias = Literal["exact", "number", "none"]
AblationStage: TypeAlias = Literal["sources", "questions", "duplicates", "held_out", "teachers", "samples", "answers"]


OBJECT_MARK = "object of "
"""What stands before the class of an environment or policy that was given as an object."""


def _require(holds: bool, line: str) -> None:
    if not holds:
        raise UsageError(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """A policy, and how it is sampled. Options that the policy does not have are left out."""

    policy: str | Policy = ""
    """What `wander eval --policy` takes (a player of the environment, an endpoint, a run, a script), or an object."""
    model: str | None = None
    """Name of the model, where the policy is a URL."""
    temperature: float | None = None
    max_tokens: int | None = None
    api_key: str | None = None
    """Name of the environment variable that holds the endpoint's key."""
    samples: int = 1
    """Answers per question."""

    def __post_init__(self) -> None:
        _require(self.policy != "", "needs a policy")
        _require(self.samples >= 1, f"samples is {self.samples}, and must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher(PolicySettings):
    """A policy whose answers become rows."""

    name: str = ""
    """Default: the policy's name."""

    @property
    def label(self) -> str:
        """The name, or that of the policy."""
        return self.name or (self.policy if isinstance(self.policy, str) else type(self.policy).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Questions that a policy writes, each kept where solvers agree with its answer."""

    policy: str | Policy = ""
    """Writes one question and its answer as JSON."""
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    api_key: str | None = None
    documents: str = ""
    """Text files that are shown to it, as a pattern: `notes/*.md`; or one file of example questions (`.jsonl`)."""
    per_document: int = 4
    """Questions asked for per document or example."""
    solver: str | Policy | None = None
    """Answers each question to verify it. Default: the writer itself."""
    votes: int = 4
    """Answers per question by the solver."""
    agreement: float = 0.5
    """Least share of them that must be the written answer."""

    def __post_init__(self) -> None:
        _require(self.policy != "", "needs a policy")
        _require(bool(self.documents), "needs documents")
        _require(self.per_document >= 1 and self.votes >= 1, "per_document and votes must be at least 1")
        _require(0 <= self.agreement <= 1, f"agreement is {self.agreement}, and must be from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where questions come from: an environment, a file, or a policy that writes them."""

    name: str = ""
    """Default: that of the environment or file."""
    env: str | Environment | None = None
    """An environment by name with settings, or an object. `reasoning-gym,dataset=chain_sum,level=2` is a curriculum's
    level."""
    split: str = "train"
    file: str | None = None
    """A `.jsonl`, `.csv` or `.parquet` file."""
    prompt: str = "prompt"
    """Column of the question."""
    answer: str | None = "answer"
    """Column of the answer; a file without one has no verifier."""
    verifier: Verifier = "exact"
    """How answers to a file's questions are checked: the same text, the same number, or not."""
    system: str | None = None
    """System message before each question of a file."""
    writing: Writing | None = None
    weight: float = 1.0
    """Share in the mixture, relative to the other sources."""
    count: int | None = None
    """Most questions that are read. Default: all."""

    def __post_init__(self) -> None:
        given = [name for name in ("env", "file", "writing") if getattr(self, name) is not None]
        _require(len(given) == 1, "needs one of env, file and writing")
        _require(self.weight > 0, f"weight is {self.weight}, and must be above 0")
        _require(self.count is None or self.count >= 1, f"count is {self.count}, and must be at least 1")

    @property
    def label(self) -> str:
        """The name, or one after what it reads."""
        if self.name or self.writing is not None:
            return self.name or "written"
        if self.file is not None:
            return Path(self.file).stem
        return self.env if isinstance(self.env, str) else type(self.env).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class DifficultyFilter(PolicySettings):
    """Keep questions that a model answers sometimes."""

    samples: int = 4
    low: float = 0.0
    """Least share of passed answers."""
    high: float = 1.0
    """Highest share of passed answers."""
    pass_threshold: float = 1.0
    """Smallest reward that counts as passed."""

    def __post_init__(self) -> None:
        PolicySettings.__post_init__(self)
        _require(0 <= self.low <= self.high <= 1, f"low is {self.low} and high {self.high}: 0 <= low <= high <= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionJudge(PolicySettings):
    """Keep questions that a judge rates well enough, from 1 to 10."""

    least: float = 6.0
    """Least mean rating."""
    criterion: str = "The question is clear, complete, and has exactly one right answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFilters:
    """Which questions are kept. Without settings: all."""

    min_chars: int = 0
    max_chars: int = 0
    """0: no bound."""
    difficulty: DifficultyFilter | None = None
    judge: QuestionJudge | None = None
    label_agreement: float | None = None
    """Leave out questions whose own answer no teacher supports, and one contradicts with at least this share of its
    answers."""
    longest_answers: float = 1.0
    """Share of questions that is kept: those with the longest mean answer of the teachers."""

    def __post_init__(self) -> None:
        _require(0 < self.longest_answers <= 1, "longest_answers must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Questions that no row may be about."""

    name: str = ""
    env: str | Environment | None = None
    split: str = "eval"
    file: str | None = None
    prompt: str = "prompt"
    answer: str | None = "answer"
    count: int | None = None

    def __post_init__(self) -> None:
        _require((self.env is None) != (self.file is None), "needs one of env and file")

    def as_source(self) -> Source:
        """The same, to be read."""
        return Source(
            name=self.label,
            env=self.env,
            split=self.split,
            file=self.file,
            prompt=self.prompt,
            answer=self.answer,
            count=self.count,
        )

    @property
    def label(self) -> str:
        """The name, or one after what it reads."""
        return self.name or Source(env=self.env, file=self.file).label


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFilters:
    """Which answers are kept. Without settings: all (arXiv 2506.04178, section 4.5)."""

    min_reward: float | None = None
    """Least reward by the environment, or by the file's answers."""
    majority: float | None = None
    """Keep answers that agree with the most frequent one, where at least this share of the samples does."""
    min_chars: int = 0
    max_chars: int = 0
    """0: no bound."""
    language: str = ""
    """`en`, `de`, `fr`, `es`, `it`, `pt`, or a script: latin, cyrillic, han, arabic, ... Empty: any."""

    def __post_init__(self) -> None:
        _require(self.majority is None or 0 <= self.majority <= 1, "majority must be from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much is written. Rows are taken question by question in the mixture's order."""

    rows: int | None = None
    tokens: int | None = None
    """Of answers: as the policy counted them, else a quarter of the characters."""

    def __post_init__(self) -> None:
        _require(all(one is None or one >= 1 for one in (self.rows, self.tokens)), "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A small model that is trained on a recipe's rows, and how it is examined."""

    policy: str = "fresh"
    env: str | Environment | None = None
    """Where it is examined. Default: the first source's environment."""
    split: str = "eval"
    questions: int = 100
    """Questions it is examined on."""
    samples: int = 1
    """Answers per question, drawn at temperature 1; one is the likeliest answer."""
    max_tokens: int = 256
    seeds: tuple[int, ...] = (0, 1, 2)
    tokens: int = 0
    """Tokens of conversations per student and epoch, a quarter of the characters; rows are repeated in turn. 0: those
    of the plan itself."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `wander sft`: epochs, lr, fresh_width, ..."""

    def __post_init__(self) -> None:
        _require(self.questions >= 1 and self.samples >= 1, "questions and samples must be at least 1")
        _require(bool(self.seeds), "needs at least one seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The plan with something changed. What is not named stays."""

    name: str
    without_sources: tuple[str, ...] = ()
    only_sources: tuple[str, ...] = ()
    only_teachers: tuple[str, ...] = ()
    samples: int | None = None
    """Answers per question of each teacher, at most."""
    duplicates: tuple[DuplicateKind, ...] | None = None
    held_out: bool = True
    """False: without decontamination."""
    questions: QuestionFilters | None = None
    answers: AnswerFilters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """Everything that rows of training data depend on."""

    name: str = "data"
    seed: int = 0
    sources: tuple[Source, ...] = ()
    mix: int | None = None
    """Questions that are drawn from the sources by their weights. Default: all questions of all sources."""
    questions: QuestionFilters = QuestionFilters()
    duplicates: tuple[DuplicateKind, ...] = ("exact", "fuzzy", "slots")
    held_out: tuple[HeldOut, ...] = ()
    teachers: tuple[Teacher, ...] = ()
    answers: AnswerFilters = AnswerFilters()
    budget: Budget = Budget()
    formats: tuple[OutputFormat, ...] = ("sft", "dpo", "rl")
    student: Student | None = None
    ablate: tuple[AblationStage, ...] = ()
    """Stages that `ablate` varies, one at a time."""
    variants: tuple[Variant, ...] = ()
    """Further recipes that it compares."""

    def __post_init__(self) -> None:
        _require(bool(self.sources), "there are no sources: write [[sources]] with env, file or writing")
        for kind, names in (
            ("sources", [one.label for one in self.sources]),
            ("teachers", [one.label for one in self.teachers]),
            ("variants", [one.name for one in self.variants]),
            ("held_out", [one.label for one in self.held_out]),
        ):
            again = next((name for n, name in enumerate(names) if name in names[:n]), None)
            _require(again is None, f"two {kind} are called {again!r}: give one another name")
        _require(self.mix is None or self.mix >= 1, f"mix is {self.mix}, and must be at least 1")
        for variant in self.variants:
            try:
                self.varied(variant)
            except UsageError as error:
                raise UsageError(f"variant {variant.name!r}: {error}") from error

    def varied(self, variant: Variant) -> "DataPlan":
        """The plan of a variant. Raises UsageError for a source or teacher that there is not."""
        sources, teachers = [one.label for one in self.sources], [one.label for one in self.teachers]
        for kind, known, names in (
            ("sources", sources, (*variant.without_sources, *variant.only_sources)),
            ("teachers", teachers, variant.only_teachers),
        ):
            for name in names:
                _require(name in known, f"there is no {name!r}; {nearest_names(name, known, kind=kind)}")
        wanted = [one for one in variant.only_sources or sources if one not in variant.without_sources]
        kept = tuple(one for one in self.teachers if not variant.only_teachers or one.label in variant.only_teachers)
        if variant.samples is not None:
            kept = tuple(replace(one, samples=min(one.samples, variant.samples)) for one in kept)
        return replace(
            self,
            sources=tuple(one for one in self.sources if one.label in wanted),
            teachers=kept,
            duplicates=self.duplicates if variant.duplicates is None else variant.duplicates,
            held_out=self.held_out if variant.held_out else (),
            questions=variant.questions or self.questions,
            answers=variant.answers or self.answers,
            ablate=(),
            variants=(),
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON data: objects by the name of their class, and settings that are at their default left out."""
        return {name: value for name, value in _as_json(self).items() if value not in (None, [], {})}

    @property
    def is_plain(self) -> bool:
        """Whether `as_dict` says everything: no environment or policy is an object."""
        return OBJECT_MARK not in json.dumps(self.as_dict())


def read_plan(path: str | Path) -> DataPlan:
    """The plan in a TOML file. Raises UsageError in one line that names the file, the key, and what to do."""
    path = Path(path)
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    try:
        plan: DataPlan = _converted(body, DataPlan, "")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return plan


def _converted(value: Any, kind: Any, where: str) -> Any:
    """A value of TOML as what a field holds. Raises UsageError that begins with `where` it stands."""
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        usable = [one for one in options if one is not NoneType and one not in (Policy, Environment)]
        return _converted(value, usable[0], where)
    if is_dataclass(kind):
        return _dataclass_of(value, kind, where)
    if origin is tuple:
        _require(isinstance(value, list), f"{where} must be a list")
        return tuple(_converted(one, options[0], f"{where}[{n}]") for n, one in enumerate(value))
    if origin is Literal:
        _require(value in options, f"{where} is {value!r}, and must be one of {', '.join(map(repr, options))}")
    elif (origin or kind) is Mapping:
        _require(isinstance(value, dict), f"{where} must be a table of settings")
    else:
        value = float(value) if kind is float and type(value) is int else value
        words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        _require(type(value) is kind, f"{where} is {value!r}, and must be {words.get(kind, kind)}")
    return value


def _dataclass_of(value: Any, kind: Any, where: str) -> Any:
    _require(isinstance(value, dict), f"{where} must be a table: [{where}] with settings below it")
    hints, known = get_type_hints(kind), [one.name for one in fields(kind)]
    made = {}
    for name, one in value.items():
        place = f"{where}.{name}" if where else name
        what = "stages" if not where else "settings"
        _require(name in known, f"there is no {place}; {nearest_names(name, known, kind=what)}")
        made[name] = _converted(one, hints[name], place)
    missing = [one.name for one in fields(kind) if _is_required(one) and one.name not in made]
    _require(not missing, f"{where} needs {', '.join(missing)}")
    try:
        return kind(**made)
    except UsageError as error:
        raise UsageError(f"{where}: {error}" if where else str(error)) from error


def _is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for one in fields(value):
            own = getattr(value, one.name)
            if one.default is MISSING or own is not one.default:
                changed[one.name] = _as_json(own)
        return {name: own for name, own in changed.items() if own is not None}
    if isinstance(value, Mapping):
        return {key: _as_json(own) for key, own in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(own) for own in value]
    plain = isinstance(value, str | int | float | bool | NoneType)
    return value if plain else f"{OBJECT_MARK}{type(value).__name__}"
