"""Recipes compared by what a small student learns from them, at equal cost; teachers are chosen in the same way.

The stages of a plan are varied one at a time (arXiv 2506.04178). Every recipe's rows train students from the same
start, on as many tokens, with each seed. Students are examined on held-out questions; those that are among some
recipe's own questions are in no comparison, and are reported apart as leaked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import chain, cycle
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.comparison import rewards_by_task
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.statistics import Difference, Estimate, corrected, difference_over_seeds, estimate
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.store.formats import CONVERSATION_COLUMNS
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Task
from wanderlust_data.build import CHARS_PER_TOKEN, DATA_FOLDER, Answers, Recipe, begin_folder, write_data
from wanderlust_data.duplicates import find_contaminated
from wanderlust_data.plan import AblationStage, AnswerFilters, DataPlan, QuestionFilters, Source, Variant, read_plan
from wanderlust_data.questions import OpenSource, Question, open_source
from wanderlust_data.sampling import SampleStore

BASE = "the plan"
REPORT_FILES = {"ablation": "ablation.json", "teachers": "teachers.json"}
MAJORITY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeResult:
    """What students learnt from one recipe."""

    name: str
    questions: int
    rows: int
    tokens: int
    """Of its own conversations; every student was trained on as many, rows repeated or left out."""
    leaked: tuple[str, ...]
    """Ids of the exam questions that are among its own."""
    reward: Estimate
    """Of its students, all seeds, on exam questions that no recipe has."""
    by_seed: dict[int, float]
    over_plan: Difference | None = None
    """The difference to the plan itself; its interval covers the choice of questions and of seeds."""
    leaked_reward: float | None = None
    """Of its students, on the exam questions that it has itself."""
    teacher_reward: float | None = None
    """Of its teacher, on its questions, before any filter; None where it has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeComparison:
    """Recipes, the best first."""

    folder: str
    exam: int
    """Questions of the exam that no recipe has."""
    tokens: int
    """That every student was trained on."""
    seeds: tuple[int, ...]
    recipes: list[RecipeResult] = field(default_factory=list)

    @property
    def best(self) -> RecipeResult:
        """The recipe whose students were best."""
        return self.recipes[0]

    def __getitem__(self, name: str) -> RecipeResult:
        return next(one for one in self.recipes if one.name == name)

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self) | {"best": self.best.name}

    @property
    def findings(self) -> list[str]:
        """What is clear, in a sentence each; chance is below 5% for all variants together (Holm)."""
        lines = []
        compared = corrected({one.name: one.over_plan for one in self.recipes if one.over_plan is not None})
        for one in self.recipes:
            if one.leaked:
                lines.append(
                    f"{one.name}: {len(one.leaked)} exam questions are among its questions: its data leaks the exam."
                )
            over = compared.get(one.name)
            if over is not None and over.clear:
                lines.append(f"{one.name}: {'better' if over.value > 0 else 'worse'} than the plan by {over}.")
        if len(compared) > 1 and not any(one.clear for one in compared.values()):
            lines.append(f"None of {len(compared)} variants is clearly better or worse than the plan.")
        taught = [one for one in self.recipes if one.teacher_reward is not None]
        if len(taught) > 1 and (star := max(taught, key=lambda one: one.teacher_reward or 0.0)) is not taught[0]:
            lines.append(
                f"{star.name}: its teacher scores highest ({star.teacher_reward:.3f}), but {taught[0].name} has better"
                f" students ({taught[0].reward.value:.3f} against {star.reward.value:.3f})."
            )
        return lines


@suspended_loop()
def ablate_data(
    plan: DataPlan | str | Path,
    out: str | Path | None = None,
    *,
    concurrency: int = 64,
    progress: Logger | bool = True,
) -> RecipeComparison:
    """Compare the plan with variants of it, each by students trained on its rows, at equal cost.

    An interrupted call goes on when it is made again: answers, students and exams are kept in `out`.

    Args:
        plan: A plan with `student`, and `ablate` (stages to vary) or `variants`; or its TOML file.
        out: Folder that is written. Default: `data/NAME-ablation`.
        concurrency: Answers at once.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        The recipes, the best first, with intervals.

    Raises:
        UsageError: when the plan is wrong, has no student or nothing to vary, or a recipe leaves nothing.

    Example:
        >>> ablate_data("sums.toml").best.name
        'without forum'
    """
    plan = plan if isinstance(plan, DataPlan) else read_plan(plan)
    variants = [*stage_variants(plan), *plan.variants]
    if not variants:
        raise UsageError('nothing to vary: write ablate = ["sources", ...], or [[variants]]')
    recipes = {BASE: plan.varied(Variant(name=BASE))} | {one.name: plan.varied(one) for one in variants}
    return _Bench(plan, Path(out or DATA_FOLDER / f"{plan.name}-ablation"), "ablation").compare(
        recipes, concurrency=concurrency, progress=progress
    )


@suspended_loop()
def compare_teachers(
    plan: DataPlan | str | Path,
    out: str | Path | None = None,
    *,
    concurrency: int = 64,
    progress: Logger | bool = True,
) -> RecipeComparison:
    """Compare the plan's teachers by what students learn from each alone, at equal cost; the teachers' rewards beside.

    Arguments, result and errors are those of `ablate_data`; the folder is `data/NAME-teachers`.

    Example:
        >>> compare_teachers("sums.toml").best.name
        'worked'
    """
    plan = plan if isinstance(plan, DataPlan) else read_plan(plan)
    if len(plan.teachers) < 2:
        raise UsageError("a comparison of teachers needs two or more: write [[teachers]] for each")
    names = [one.label for one in plan.teachers]
    recipes = {name: plan.varied(Variant(name=name, only_teachers=(name,))) for name in names}
    return _Bench(plan, Path(out or DATA_FOLDER / f"{plan.name}-teachers"), "teachers").compare(
        recipes, concurrency=concurrency, progress=progress
    )


def stage_variants(plan: DataPlan) -> Iterator[Variant]:
    """The variants of the stages that the plan wants varied."""
    yield from chain.from_iterable(_VARIANTS_OF[stage](plan) for stage in plan.ablate)


def _of_sources(plan: DataPlan) -> list[Variant]:
    names = [one.label for one in plan.sources]
    return [Variant(name=f"without {name}", without_sources=(name,)) for name in names if len(names) > 1]


def _of_teachers(plan: DataPlan) -> list[Variant]:
    names = [one.label for one in plan.teachers]
    return [Variant(name=f"only {name}", only_teachers=(name,)) for name in names if len(names) > 1]


def _of_duplicates(plan: DataPlan) -> list[Variant]:
    if plan.duplicates:
        return [Variant(name="with duplicates", duplicates=())]
    return [Variant(name="without duplicates", duplicates=("exact", "fuzzy", "slots"))]


def _of_held_out(plan: DataPlan) -> list[Variant]:
    return [Variant(name="not decontaminated", held_out=False)] if plan.held_out else []


def _of_samples(plan: DataPlan) -> list[Variant]:
    several = any(one.samples > 1 for one in plan.teachers)
    return [Variant(name="one answer a question", samples=1)] if several else []


def _of_questions(plan: DataPlan) -> list[Variant]:
    filtered = plan.questions != QuestionFilters()
    return [Variant(name="no question filter", questions=QuestionFilters())] if filtered else []


def _of_answers(plan: DataPlan) -> list[Variant]:
    if plan.answers != AnswerFilters():
        return [Variant(name="no answer filter", answers=AnswerFilters())]
    return [
        Variant(name="verified answers", answers=AnswerFilters(min_reward=1.0)),
        Variant(name="majority answers", answers=AnswerFilters(majority=MAJORITY)),
    ]


_VARIANTS_OF: Mapping[AblationStage, Callable[[DataPlan], list[Variant]]] = {
    "sources": _of_sources,
    "questions": _of_questions,
    "duplicates": _of_duplicates,
    "held_out": _of_held_out,
    "teachers": _of_teachers,
    "samples": _of_samples,
    "answers": _of_answers,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exam:
    env: Environment
    tasks: list[Task]


class _Bench:
    """The folder of a comparison."""

    def __init__(self, plan: DataPlan, out: Path, kind: str):
        if plan.student is None:
            raise UsageError('there is no student: write [student], for instance with policy = "fresh"')
        self.plan, self.student, self.out, self.kind = plan, plan.student, out, kind
        begin_folder(out, plan)

    def compare(
        self, recipes: Mapping[str, DataPlan], *, concurrency: int, progress: Logger | bool
    ) -> RecipeComparison:
        """Build every recipe, train and examine its students, and rank them."""
        with open_progress(progress) as logger:
            samples = SampleStore(
                out=self.out, seed=self.plan.seed, concurrency=concurrency, logger=logger, shared=True
            )
            sources = [open_source(one, samples.play, note=samples.note) for one in self.plan.sources]
            built = self._build(recipes, sources, samples)
            exam = self._exam()
            leaks = {name: self._leaked(recipe.questions, exam.tasks) for name, recipe in built.items()}
            target = self.student.tokens or _tokens(next(iter(built.values())).rows)
            rewards: dict[str, _Rewards] = {}
            for name, recipe in built.items():
                rows = [*_cut(recipe.rows, target)]
                rewards[name] = {seed: self._examine(name, rows, exam, seed=seed) for seed in self.student.seeds}
                mean = fmean(fmean(map(fmean, own.values())) for own in rewards[name].values())
                samples.note(f"{name}: {len(recipe.rows):,} rows, students {mean:.3f}")
        leaked = set[str]().union(*leaks.values())
        clean = [task.id for task in exam.tasks if task.id not in leaked]
        if not clean:
            raise UsageError("every exam question is among some recipe's questions: examine with another split")
        base = rewards.get(BASE)
        results = [
            _result(recipe, name, rewards[name], base=base, clean=clean, leaked=leaks[name])
            for name, recipe in built.items()
        ]
        results.sort(key=lambda one: (-one.reward.value, one.name))
        report = RecipeComparison(
            folder=str(self.out), exam=len(clean), tokens=target, seeds=self.student.seeds, recipes=results
        )
        text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"
        write_whole(self.out / REPORT_FILES[self.kind], text)
        return report

    def _build(
        self, recipes: Mapping[str, DataPlan], sources: Sequence[OpenSource], samples: SampleStore
    ) -> dict[str, Recipe]:
        """The rows of each recipe; a question that several ask is answered once by each teacher."""
        built = {
            name: Recipe(
                plan=plan,
                sources=[one for one in sources if one.source.label in [each.label for each in plan.sources]],
                samples=samples,
            )
            for name, plan in recipes.items()
        }
        for recipe in built.values():
            recipe.select()
        asked = {one.id for recipe in built.values() for one in recipe.questions}
        everything = Recipe(plan=self.plan, sources=sources, samples=samples)
        answers: Answers = everything.ask_teachers(asked)
        for name, recipe in built.items():
            recipe.collect(answers)
            folder = self.out / "recipes" / _folder_name(name)
            folder.mkdir(parents=True, exist_ok=True)
            write_data(folder, recipe, answers, digest="")
        return built

    def _exam(self) -> _Exam:
        given = self.student.env
        if given is None:
            first = next((one.env for one in self.plan.sources if one.env is not None), None)
            if first is None:
                raise UsageError("student.env is not set, and no source is an environment: say where to examine it")
            given = first
        opened = open_source(Source(name="exam", env=given, split=self.student.split, count=1))
        tasks = choose_tasks(iter_tasks(opened.env, self.student.split), self.student.questions)
        return _Exam(env=opened.env, tasks=tasks)

    def _leaked(self, questions: Sequence[Question], exam: Sequence[Task]) -> set[str]:
        """The ids of exam questions that are among the questions."""
        asked = [one for one in questions if one.text]
        others = [one for task in exam if (one := Question(source="exam", task=task)).text]
        matches = find_contaminated(
            [one.text for one in asked],
            [one.text for one in others],
            answers=[one.answer for one in asked],
            held_out_answers=[one.answer for one in others],
        )
        return {others[one.of].task.id for one in matches}

    def _examine(
        self, name: str, rows: Sequence[Mapping[str, Any]], exam: _Exam, *, seed: int
    ) -> dict[str, list[float]]:
        """The exam's rewards by task of a student that was trained on the rows."""
        with needs_extra("train"):
            from wanderlust.training.finetune import finetune
        label, student = f"{_folder_name(name)}-seed{seed}", self.student
        settings = {"eval_share": 0.0} | dict(student.settings)
        trained = finetune(
            [{key: row[key] for key in (*CONVERSATION_COLUMNS, "task") if key in row} for row in rows],
            student.policy,
            out=self.out / "students" / label,
            seed=seed,
            progress=False,
            **settings,
        )
        folder = self.out / "exams" / label
        options = PolicyOptions(temperature=0.0 if student.samples == 1 else 1.0, max_tokens=student.max_tokens)
        policy = resolve_policy(str(trained.policy_folder), exam.env, options).policy
        evaluate_sync(exam.env, policy, tasks=exam.tasks, samples=student.samples, out=folder, progress=False)
        return rewards_by_task(folder)


_Rewards: TypeAlias = Mapping[int, Mapping[str, Sequence[float]]]
"""By seed and exam question."""


def _result(
    recipe: Recipe, name: str, rewards: _Rewards, *, base: _Rewards | None, clean: Sequence[str], leaked: set[str]
) -> RecipeResult:
    tables, own_leaks = _means(rewards), [table[task] for table in _means(rewards) for task in leaked if task in table]
    taught = [one.reward for one in recipe.teachers if one.reward is not None]
    compared = base is not None and name != BASE
    return RecipeResult(
        name=name,
        questions=len(recipe.questions),
        rows=len(recipe.rows),
        tokens=_tokens(recipe.rows),
        leaked=tuple(sorted(leaked)),
        reward=estimate([[table[task] for table in tables if task in table] for task in clean]),
        by_seed={
            seed: fmean(table[task] for task in clean if task in table)
            for seed, table in zip(rewards, tables, strict=True)
        },
        over_plan=difference_over_seeds(tables, _means(base), clean) if compared and base is not None else None,
        leaked_reward=fmean(own_leaks) if own_leaks else None,
        teacher_reward=taught[0] if len(taught) == 1 else None,
    )


def _means(rewards: _Rewards) -> list[dict[str, float]]:
    """The mean reward of each exam question, by seed."""
    return [{task: fmean(values) for task, values in own.items()} for own in rewards.values()]


def _tokens(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(map(_cost, rows))


def _cost(row: Mapping[str, Any]) -> int:
    """The tokens of a row's conversation, questions included: a quarter of its characters."""
    messages = row["messages"] if "messages" in row else [*row["prompt"], *row["completion"]]
    return 1 + sum(len(message["content"] or "") for message in messages) // CHARS_PER_TOKEN


def _cut(rows: Sequence[Mapping[str, Any]], target: int) -> Iterator[Mapping[str, Any]]:
    """The rows in turn until they have that many tokens."""
    spent = 0
    for row in cycle(rows):
        yield row
        spent += _cost(row)
        if spent >= target:
            return


def _folder_name(name: str) -> str:
    plain = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
    return plain if plain == name else f"{plain[:40]}-{sha256(name.encode()).hexdigest()[:6]}"
