"""Which data sets of reasoning-gym a reasoner is made and examined on, and how they are mixed.

A set is left out where its own answers fail its own scorer, or where questions or answers are too long for the model.
Held-out sets are drawn family by family before anything is trained, so no result can choose them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.tasks.instructed import Instructed
from wanderlust.tasks.mixture import ENVIRONMENT_KEY, Mixture
from wanderlust.types import Rollout, RubricLike, Score, Task, Trajectory
from wanderlust_reasoning.environment import ReasoningGym, dataset_names

LEFT_OUT_DATASETS: Mapping[str, str] = {
    **dict.fromkeys(
        ("boxnet", "graph_color", "propositional_logic"), "has no answer of its own that its scorer accepts"
    ),
    **dict.fromkeys(("rubiks_cube", "rush_hour"), "its scorer gives its own answer 0.01"),
    "composite": "is made of other sets, and cannot be made by its name",
    **dict.fromkeys(
        ("codeio", "list_functions", "polynomial_multiplication"), "makes some questions anew in each process"
    ),
    "sokoban": "takes seconds, and keeps a hundred megabytes, for each question of its first level",
}
"""Sets of reasoning-gym 0.1.25 that are always left out, and why."""
LENGTH_SAMPLE = 6
"""Questions of a set whose lengths are looked at."""
BRIEF_RULES = "Give only the answer, written as the question asks for it, in this form: <answer>...</answer>"
"""The system text where there is no room for thinking."""
THINKING_RULES = "Work it out first, then answer in this form: <answer>7</answer>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """A data set that may be trained on or held out."""

    name: str
    family: str
    """`arithmetic`, `logic`, ...: the package of reasoning-gym that it comes from."""
    level: int | None
    """Of its curriculum; None where it has none, or cannot be made at that level."""

    def environment(self, *, size: int, seed: int) -> ReasoningGym:
        """The set with so many questions for each split."""
        return ReasoningGym(self.name, size=size, seed=seed, **({} if self.level is None else {"level": self.level}))


@dataclass(frozen=True, slots=True)
class WholeAnswers:
    """Pays 1 for what a rubric gives 1, and else nothing; its parts stay to be read.

    Many sets give a wrong answer 0.01 to 0.7. Paid for that, a policy learns the answer that is nowhere far off: `0.5`
    to every probability.
    """

    rubric: RubricLike

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The rubric's score with a reward of 0 or 1."""
        score = await self.rubric.score(rollout, trajectory)
        return replace(score, reward=float(score.reward >= 1))


class QuestionMix(Instructed):
    """Several sets as one environment with one system text; with `kept`, only those questions of `train`."""

    def __init__(
        self,
        sets: Sequence[CandidateSet],
        *,
        size: int,
        seed: int = 0,
        rules: str = BRIEF_RULES,
        kept: Collection[str] | None = None,
    ):
        """All sets weigh the same. Raises UsageError without a set."""
        mixed = Mixture(
            {one.environment(size=size, seed=seed): 1.0 for one in sets}, seed=seed, names=[one.name for one in sets]
        )
        super().__init__(mixed, text=rules)
        if mixed.rubric is not None:
            self.rubric = WholeAnswers(mixed.rubric)
        self.kept = None if kept is None else frozenset(kept)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The questions of all sets, mixed."""
        for task in super().tasks(split):
            if split != "train" or self.kept is None or task.id in self.kept:
                yield task

    def each(self, split: str, count: int) -> list[Task]:
        """The first `count` questions of every set."""
        return [*first_of_each(self.tasks(split), count)]


def first_of_each(tasks: Iterable[Task], count: int) -> Iterator[Task]:
    """The first `count` tasks of each environment of a mixture."""
    seen: dict[str, int] = {}
    for task in tasks:
        name = str(task.info[ENVIRONMENT_KEY])
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= count:
            yield task


def survey_sets(
    names: Sequence[str], *, level: int, max_question_chars: int, max_answer_chars: int
) -> tuple[list[CandidateSet], dict[str, str]]:
    """The sets that fit, and why each of the others is left out. No names: all sets.

    Raises UsageError for a name that there is not.
    """
    fitting: list[CandidateSet] = []
    left_out: dict[str, str] = {}
    for name in names or dataset_names():
        if name in LEFT_OUT_DATASETS:
            left_out[name] = LEFT_OUT_DATASETS[name]
            continue
        candidate, tasks = _made(name, level)
        question = max(len(str(task.prompt[-1].content)) for task in tasks)
        answer = max(len(task.answer or "") for task in tasks)
        if question > max_question_chars:
            left_out[name] = f"questions of {question} characters"
        elif answer > max_answer_chars:
            left_out[name] = f"answers of {answer} characters"
        else:
            fitting.append(candidate)
    return fitting, left_out


def _made(name: str, level: int) -> tuple[CandidateSet, list[Task]]:
    """A set and some of its questions, at the level where it has a curriculum that can be made."""
    with needs_extra("reasoning"):
        from reasoning_gym.factory import DATASETS, has_curriculum
    if name not in DATASETS:
        ReasoningGym(name).tasks()
        raise UsageError(f"reasoning-gym has no data set {name!r}")
    family = DATASETS[name][0].__module__.split(".")[1]
    for chosen in (level, None) if has_curriculum(name) else (None,):
        candidate = CandidateSet(name=name, family=family, level=chosen)
        try:
            return candidate, [*islice(candidate.environment(size=LENGTH_SAMPLE, seed=0).tasks(), LENGTH_SAMPLE)]
        except UsageError:
            if chosen is None:
                raise
    raise UsageError(f"reasoning-gym cannot make {name!r}")


def draw_held_out(sets: Sequence[CandidateSet], count: int, *, seed: int) -> tuple[list[CandidateSet], ...]:
    """So many held-out sets, and those of training: families in turn, in an order and with members of the seed's draw.

    A family's last set stays in training. Raises UsageError where that leaves too few.
    """
    rng = Random(f"reasoner/held-out/{seed}")
    families: dict[str, list[CandidateSet]] = {}
    for one in sorted(sets, key=lambda one: one.name):
        families.setdefault(one.family, []).append(one)
    for members in families.values():
        rng.shuffle(members)
    order = sorted(families)
    rng.shuffle(order)
    held_out: list[CandidateSet] = []
    while len(held_out) < count:
        open_families = [family for family in order if len(families[family]) > 1]
        if not open_families:
            raise UsageError(f"{len(sets)} sets of {len(order)} families: too few to hold out {count}")
        held_out += [families[family].pop() for family in open_families[: count - len(held_out)]]
    return held_out, sorted((one for members in families.values() for one in members), key=lambda one: one.name)


def halves(sets: Sequence[CandidateSet], *, seed: int) -> tuple[list[CandidateSet], list[CandidateSet]]:
    """The sets in two parts, whole families each, for training on one after the other.

    Raises UsageError where there is a single family.
    """
    families = sorted({one.family for one in sets})
    if len(families) < 2:
        raise UsageError("continual training needs training sets of at least two families")
    Random(f"reasoner/halves/{seed}").shuffle(families)
    first = {*families[::2]}
    return [one for one in sets if one.family in first], [one for one in sets if one.family not in first]
