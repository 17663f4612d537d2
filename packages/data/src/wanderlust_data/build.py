"""From a plan to rows: read, mix, filter, remove copies, ask the teachers, filter their answers, write."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import UsageError, writing
from wanderlust.openai_types import message_to_wire
from wanderlust.rubrics.answers import stated_answer
from wanderlust.rubrics.parsing import last_number, parse_number
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.store.formats import CONVERSATION_COLUMNS, conversations, preferences
from wanderlust.store.whole_files import write_whole
from wanderlust.types import Group, Rollout, Task, user
from wanderlust_data.card import (
    CARD_FILE,
    CARD_PAGE,
    PLAN_FILE,
    Card,
    Stages,
    TeacherCount,
    read_card,
)
from wanderlust_data.duplicates import find_contaminated, find_duplicates
from wanderlust_data.filters import (
    check_language,
    is_contradicted,
    longest_answered,
    majority_answer,
    passed_filters,
    refused_by,
    reward_of,
)
from wanderlust_data.plan import DataPlan, QuestionJudge, read_plan
from wanderlust_data.questions import (
    OpenSource,
    Question,
    last_text,
    mixed_questions,
    open_source,
    read_held_out,
)
from wanderlust_data.sampling import SampleStore

DATA_FOLDER = Path("data")
CHARS_PER_TOKEN = 4
Answers = Mapping[str, Mapping[str, list[Rollout]]]
"""By teacher and question, the scored rollouts."""


@dataclass(slots=True, kw_only=True)
class Recipe:
    """A plan on its way: the questions that are left, then the rows, and the counts of each stage."""

    plan: DataPlan
    sources: Sequence[OpenSource]
    samples: SampleStore
    questions: list[Question] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    stages: Stages = field(default_factory=lambda: Stages(_source_of))
    teachers: list[TeacherCount] = field(default_factory=list)
    label_conflicts: int = 0
    pass_rates: dict[str, float] = field(default_factory=dict)
    """By question, where difficulty was measured."""

    def select(self) -> None:
        """Every stage of questions that comes before the teachers."""
        check_language(self.plan.answers.language)
        total = sum(len(one.questions) for one in self.sources)
        self.questions = mixed_questions(self.sources, self.plan.mix, seed=self.plan.seed)
        not_drawn = {"not drawn": total - len(self.questions)}
        self.stages.record("sources", "questions", before=total, left=self.questions, removed=not_drawn)
        self._by_length()
        self._without_duplicates()
        self._without_held_out()
        self._by_difficulty()
        self._by_judge()

    def _keep(self, stage: str, reasons: Mapping[str, str]) -> None:
        """Leave out the questions that have a reason."""
        before = len(self.questions)
        self.questions = [one for one in self.questions if one.id not in reasons]
        removed = dict(Counter(reasons.values()))
        self.stages.record(stage, "questions", before=before, left=self.questions, removed=removed)

    def _by_length(self) -> None:
        low, high = self.plan.questions.min_chars, self.plan.questions.max_chars
        if low or high:
            lengths = {one.id: len(one.text) for one in self.questions}
            short = {name: "min_chars" for name, length in lengths.items() if length < low}
            self._keep("length", short | {name: "max_chars" for name, n in lengths.items() if high and n > high})

    def _without_duplicates(self) -> None:
        if not self.plan.duplicates:
            return
        asked = [one for one in self.questions if one.text]
        matches = find_duplicates(
            [one.text for one in asked], [one.answer for one in asked], kinds=self.plan.duplicates
        )
        self.label_conflicts = sum(
            None not in (asked[one.row].answer, asked[one.of].answer)
            and str(asked[one.row].answer).lower() != str(asked[one.of].answer).lower()
            for one in matches
        )
        self._keep("duplicates", {asked[one.row].id: one.kind for one in matches})

    def _without_held_out(self) -> None:
        for held_out in self.plan.held_out:
            asked = [one for one in self.questions if one.text]
            others = [one for one in read_held_out(held_out) if one.text]
            matches = find_contaminated(
                [one.text for one in asked],
                [one.text for one in others],
                answers=[one.answer for one in asked],
                held_out_answers=[one.answer for one in others],
            )
            self._keep(f"held out: {held_out.label}", {asked[one.row].id: one.kind for one in matches})

    def _by_difficulty(self) -> None:
        wanted = self.plan.questions.difficulty
        if wanted is None:
            return
        reasons = {}
        for name, answers in self._ask("difficulty", wanted, samples=wanted.samples).items():
            passed = [reward_of(one) >= wanted.pass_threshold for one in answers]
            rate = fmean(passed) if passed else None
            if rate is None:
                reasons[name] = "no answer"
            elif not wanted.low <= rate <= wanted.high:
                reasons[name] = "too hard" if rate < wanted.low else "too easy"
            else:
                self.pass_rates[name] = rate
        self._keep("difficulty", reasons)

    def _by_judge(self) -> None:
        judge = self.plan.questions.judge
        if judge is None:
            return
        tasks = [Task(id=one.id, prompt=(user(_judging_prompt(judge, one)),)) for one in self.questions]
        env = SingleTurnEnvironment(tasks, rubric=Rubric(_rating))
        ratings = self.samples.play("judge", env, tasks, policy=judge, samples=judge.samples)
        reasons = {}
        for name, given in ratings.items():
            if not given:
                reasons[name] = "no rating"
            elif fmean(map(reward_of, given)) < judge.least:
                reasons[name] = "rated low"
        self._keep("judge", reasons)

    def _ask(
        self, name: str, policy: Any, *, samples: int, ids: Iterable[str] | None = None
    ) -> dict[str, list[Rollout]]:
        """The rollouts of a policy on the questions that are left, or on those of some ids, by question."""
        wanted = None if ids is None else {*ids}
        questions = self.questions
        if wanted is not None:
            questions = [one for source in self.sources for one in source.questions if one.id in wanted]
        out: dict[str, list[Rollout]] = {}
        for source in self.sources:
            own = [one for one in questions if one.source == source.source.label]
            if own:
                played = self.samples.play(
                    f"{name}-{source.source.label}",
                    source.env,
                    [one.task for one in own],
                    policy=policy,
                    samples=samples,
                )
                out |= {one.id: played[one.task.id] for one in own}
        return out

    def ask_teachers(self, ids: Iterable[str] | None = None) -> Answers:
        """The answers of every teacher to the questions that are left, or to those of some ids."""
        ids = None if ids is None else [*ids]
        return {
            teacher.label: self._ask(f"teacher-{teacher.label}", teacher, samples=teacher.samples, ids=ids)
            for teacher in self.plan.teachers
        }

    def collect(self, answers: Answers) -> None:
        """Make the rows of the answers that the filters let through, up to the budget."""
        plan = self.plan
        answers = {
            teacher.label: {
                one.id: [r for r in answers[teacher.label].get(one.id, ()) if r.sample_index < teacher.samples]
                for one in self.questions
            }
            for teacher in plan.teachers
        }
        self._count_teachers(answers)
        self._by_answers(answers)
        if plan.teachers:
            self._filter_answers(answers)
        else:
            self.rows = [*self._own_answers()]
            self.stages.record("answers", "rows", before=len(self.questions), left=self.rows)
        before = len(self.rows)
        self.rows = [*_within_budget(self.rows, plan.budget.rows, plan.budget.tokens)]
        self.stages.record("budget", "rows", before=before, left=self.rows)

    def _count_teachers(self, answers: Answers) -> None:
        for teacher in self.plan.teachers:
            own = answers[teacher.label]
            rewards = [reward_of(one) for given in own.values() for one in given]
            played = len(self.questions) * teacher.samples
            self.teachers.append(
                TeacherCount(
                    teacher=teacher.label,
                    played=played,
                    failed=played - len(rewards),
                    reward=fmean(rewards) if rewards else None,
                )
            )

    def _by_answers(self, answers: Answers) -> None:
        """The stages of questions that need to know the answers."""
        if not self.plan.teachers:
            return
        together = {one.id: [r for own in answers.values() for r in own[one.id]] for one in self.questions}
        share, agreement = self.plan.questions.longest_answers, self.plan.questions.label_agreement
        if agreement is not None:
            reasons = {}
            for one in self.questions:
                said = [majority_answer([stated_answer(last_text(r)) for r in own[one.id]]) for own in answers.values()]
                if one.answer is not None and is_contradicted(one.answer, said, agreement=agreement):
                    reasons[one.id] = "contradicted"
            self._keep("labels", reasons)
        if share < 1:
            kept = longest_answered(together, share)
            self._keep("longest answers", {one.id: "shorter" for one in self.questions if one.id not in kept})

    def _filter_answers(self, answers: Answers) -> None:
        filters, removed, played = self.plan.answers, Counter[str](), 0
        for question in self.questions:
            given = [(name, one) for name, own in answers.items() for one in own[question.id]]
            majority = majority_answer([stated_answer(last_text(one)) for _, one in given])
            for teacher, one in given:
                played += 1
                reason = refused_by(one, filters, majority)
                if reason is not None:
                    removed[reason] += 1
                    continue
                self.rows += self._rows_of(question, one, teacher=teacher)
        self.stages.record("answers", "rows", before=played, left=self.rows, removed=dict(removed))

    def _rows_of(self, question: Question, one: Rollout, *, teacher: str) -> Iterator[dict[str, Any]]:
        usage = [turn.usage.get("completion_tokens", 0) for each in one.trajectories for turn in each.turns]
        for row in conversations(one):
            told = {name: row[name] for name in CONVERSATION_COLUMNS if name in row}
            answers = row["messages"] if "messages" in row else row["completion"]
            said = sum(len(message["content"] or "") for message in answers if message["role"] == "assistant")
            yield {
                **told,
                "task": question.id,
                "source": question.source,
                "teacher": teacher,
                "seat": row["seat"],
                "seed": one.seed,
                "sample": one.sample_index,
                "reward": row["reward"],
                "tokens": sum(usage) or -(-said // CHARS_PER_TOKEN),
                "filters": [stage.stage for stage in self.stages.counts] + passed_filters(self.plan.answers),
            }

    def _own_answers(self) -> Iterator[dict[str, Any]]:
        """Rows of the answers that the sources have themselves."""
        for one in self.questions:
            if one.answer is None:
                raise UsageError(f"there are no teachers, and {one.id!r} has no answer: write [[teachers]]")
            messages = [message_to_wire(message) for message in one.task.prompt]
            yield {
                "messages": [*messages, {"role": "assistant", "content": one.answer}],
                "task": one.id,
                "source": one.source,
                "teacher": "",
                "tokens": -(-len(one.answer) // CHARS_PER_TOKEN),
                "filters": [stage.stage for stage in self.stages.counts],
            }

    def pairs(self, answers: Answers) -> Iterator[dict[str, Any]]:
        """For each question the best and the worst answer of all teachers, where their rewards differ."""
        for question in self.questions:
            rollouts = [one for own in answers.values() for one in own.get(question.id, ())]
            group = Group(task=question.task, rollouts=rollouts)
            for pair in preferences(group, min_reward=self.plan.answers.min_reward):
                yield {**pair, "task": question.id, "source": question.source}

    def tasks(self) -> Iterator[dict[str, Any]]:
        """The questions that are left, as tasks that `BuiltTasks` plays."""
        names = {one.source.label: one for one in self.sources}
        for one in self.questions:
            source = names[one.source]
            yield {
                "id": one.id,
                "source": one.source,
                "env": source.env_name,
                "verifier": source.source.verifier,
                "pass_rate": self.pass_rates.get(one.id),
                "task": msgspec.to_builtins(one.task),
            }


def _source_of(one: Any) -> str:
    return one.source if isinstance(one, Question) else str(one["source"])


def _judging_prompt(judge: QuestionJudge, one: Question) -> str:
    return (
        f"Rate the question from 1 to 10 by this criterion: {judge.criterion}\nEnd with the number alone.\n\n"
        f"<question>\n{one.text}\n</question>"
    )


def _rating(completion: str) -> float:
    """The last number of a judge's answer, at most 10; in `7/10` and `7 out of 10` it is the first of the two."""
    number = parse_number(last_number(re.sub(r"(?<=\d)\s*(?:/|out of|of)\s*10\b(?!\.\d)", "", completion)) or "")
    return 0.0 if number is None else min(10.0, max(0.0, float(number)))


def _within_budget(rows: Iterable[dict[str, Any]], most: int | None, tokens: int | None) -> Iterator[dict[str, Any]]:
    count = spent = 0
    for row in rows:
        if (most is not None and count >= most) or (tokens is not None and spent + row["tokens"] > tokens):
            return
        count, spent = count + 1, spent + row["tokens"]
        yield row


@suspended_loop()
def build_data(
    plan: DataPlan | str | Path,
    out: str | Path | None = None,
    *,
    concurrency: int = 64,
    progress: Logger | bool = True,
) -> Card:
    """Make training data by a plan: `sft.jsonl`, `dpo.jsonl`, `rl.jsonl`, and a card with the counts of each stage.

    The result depends on the plan alone, not on `concurrency`. A call that was interrupted at any moment goes on from
    its stored answers when it is made again.

    Args:
        plan: A plan, or the TOML file of one.
        out: Folder that is written. Default: `data/NAME` after the plan.
        concurrency: Answers at once.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        The card.

    Raises:
        UsageError: when the plan is wrong, a source is empty, nothing is left, or `out` holds another plan's data.
        StoreError: when something cannot be written.

    Example:
        >>> plan = DataPlan(sources=(Source(env="reasoning-gym"),), teachers=(Teacher(policy="oracle"),))
        >>> build_data(plan).files["sft"]
        500
    """
    plan = plan if isinstance(plan, DataPlan) else read_plan(plan)
    folder = Path(out) if out is not None else DATA_FOLDER / plan.name
    digest = begin_folder(folder, plan)
    if (card := read_card(folder)) is not None and card.plan_digest == digest and plan.is_plain:
        return card
    with open_progress(progress) as logger:
        samples = SampleStore(out=folder, seed=plan.seed, concurrency=concurrency, logger=logger)
        sources = [open_source(one, samples.play, note=samples.note) for one in plan.sources]
        recipe = Recipe(plan=plan, sources=sources, samples=samples)
        recipe.select()
        answers = recipe.ask_teachers()
        recipe.collect(answers)
        card = write_data(folder, recipe, answers, digest=digest)
    return card


def write_data(folder: Path, recipe: Recipe, answers: Answers, *, digest: str) -> Card:
    """Write the files and at last the card, each whole."""
    made = {"sft": lambda: recipe.rows, "dpo": lambda: recipe.pairs(answers), "rl": recipe.tasks}
    files = {}
    for name in recipe.plan.formats:
        lines = [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in made[name]()]
        write_whole(folder / f"{name}.jsonl", "".join(lines))
        files[f"{name}.jsonl"] = len(lines)
    failed = {name: count for name, count in recipe.samples.failed.items() if count}
    card = Card(
        folder=str(folder),
        plan=recipe.plan.as_dict(),
        plan_digest=digest,
        stages=recipe.stages.counts,
        teachers=recipe.teachers,
        files=files,
        tokens=sum(row["tokens"] for row in recipe.rows),
        label_conflicts=recipe.label_conflicts,
        notes=[f"{count:,} rollouts of {name} failed and are in no row" for name, count in failed.items()],
    )
    write_whole(folder / CARD_PAGE, card.page())
    write_whole(folder / CARD_FILE, json.dumps(card.as_dict(), indent=1, ensure_ascii=False) + "\n")
    return card


def begin_folder(folder: Path, plan: DataPlan) -> str:
    """Write the plan into its folder, or compare it with the one that is there; returns its digest."""
    body = {"plan": plan.as_dict(), "files": {path: _file_digest(Path(path)) for path in _files_of(plan)}}
    text = json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    digest, path = sha256(text.encode()).hexdigest(), folder / PLAN_FILE
    if not path.is_file():
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    elif (before := json.loads(path.read_text(encoding="utf-8"))) != body:
        changed = next((name for name, value in body["files"].items() if before["files"].get(name, value) != value), "")
        what = f"{changed} has changed since {folder} was begun" if changed else f"{folder} holds another plan's data"
        raise UsageError(f"{what}: name another folder, or remove it")
    return digest


def _files_of(plan: DataPlan) -> list[str]:
    files = [one.file for one in plan.sources] + [one.file for one in plan.held_out]
    return sorted({file for file in files if file is not None})


def _file_digest(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    return sha256(path.read_bytes()).hexdigest()[:16]
