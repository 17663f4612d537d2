"""Questions of every kind of source as tasks of environments: of environments, of files, and written by a policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from glob import glob
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeAlias

from wanderlust.environment import Environment, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.rubrics.answers import comparable, stated_answer
from wanderlust.rubrics.parsing import parse_number
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tasks.datasets import load_tasks, numbered_rows
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import MAX_LISTED_TASKS, iter_tasks
from wanderlust.types import Rollout, Task, user
from wanderlust_data.plan import HeldOut, Source, Verifier, Writing

MAX_DOCUMENT_CHARS = 20_000
"""Of a document, what a writer is shown."""
WRITING_RULES = (
    "Write one question about the text that has exactly one short right answer. Reply with one JSON object:"
    ' {"question": "...", "answer": "..."}'
)
EXAMPLE_RULES = (
    "Write one new question of the same kind as the example, with its right answer. Reply with one JSON object:"
    ' {"question": "...", "answer": "..."}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A task of a source."""

    source: str
    task: Task

    @property
    def id(self) -> str:
        """Of all sources together."""
        return f"{self.source}/{self.task.id}"

    @property
    def text(self) -> str:
        """What the user says; empty where the task is no more than a starting point."""
        return "\n".join(message.content for message in self.task.prompt if message.role == "user")

    @property
    def answer(self) -> str | None:
        """As text; None where the source has none, or a structure."""
        answer = self.task.answer
        return str(answer) if isinstance(answer, str | int | float) and not isinstance(answer, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSource:
    """A source with its environment, and the questions that were read."""

    source: Source
    env: Environment
    env_name: str
    questions: tuple[Question, ...]


def same_answer(one: str, other: str, *, number: bool = False) -> bool:
    """Whether two final answers are equal, but for case and spaces; with `number`, as numbers."""
    if number:
        values: list[Fraction | None] = [parse_number(comparable(text)) for text in (one, other)]
        return None not in values and values[0] == values[1]
    return " ".join(one.lower().split()).rstrip(".") == " ".join(other.lower().split()).rstrip(".")


def answer_rubric(verifier: Verifier) -> Rubric:
    """Scores the final answer against the task's; `none` scores everything 1."""

    def correct(completion: str, answer: Any) -> float:
        if verifier == "none" or answer is None:
            return 1.0
        return float(same_answer(stated_answer(completion), str(answer), number=verifier == "number"))

    return Rubric(correct)


def last_text(rollout: Rollout) -> str:
    """What the learning seat said last."""
    trajectory = next((one for one in rollout.trajectories if one.trainable and one.turns), None)
    return trajectory.turns[-1].action.content if trajectory is not None else ""


class Played(Protocol):
    """Plays tasks of an environment in a run of their own, and gives the rollouts by task."""

    def __call__(
        self, name: str, env: Environment, tasks: Sequence[Task], *, policy: Any, samples: int
    ) -> dict[str, list[Rollout]]: ...


Note: TypeAlias = Callable[[str], None]


def open_source(source: Source, play: Played | None = None, *, note: Note = lambda line: None) -> OpenSource:
    """Read a source. Raises UsageError when it has no question, or cannot be read."""
    name = source.label
    if source.writing is not None:
        if play is None:
            raise UsageError(f"{name}: questions that a policy writes are not read here")
        tasks: Sequence[Task] = [*_written(name, source.writing, play, note=note)][: source.count]
        env: Environment = SingleTurnEnvironment(tasks, rubric=answer_rubric(source.verifier))
        env_name = f"written:{name}"
    elif source.file is not None:
        tasks = _file_tasks(source)
        env, env_name = SingleTurnEnvironment(tasks, rubric=answer_rubric(source.verifier)), source.file
    else:
        env, env_name = _environment(source)
        most = source.count or MAX_LISTED_TASKS
        tasks = [*islice(iter_tasks(env, source.split), most + (source.count is None))]
        if len(tasks) > most:
            raise UsageError(f"{name}: the split has more than {MAX_LISTED_TASKS} tasks: set count")
    if not tasks:
        raise UsageError(f"the source {name!r} is empty: it has no questions")
    questions = tuple(Question(source=name, task=task) for task in tasks)
    return OpenSource(source=source, env=env, env_name=env_name, questions=questions)


def read_held_out(held_out: HeldOut) -> tuple[Question, ...]:
    """The questions that no row may be about."""
    return open_source(held_out.as_source()).questions


def _environment(source: Source) -> tuple[Environment, str]:
    if isinstance(source.env, str):
        resolved = resolve_environment(source.env)
        return resolved.env, source.env
    if source.env is None:
        raise UsageError(f"the source {source.label!r} has no environment")
    return source.env, type(source.env).__name__


def _file_tasks(source: Source) -> list[Task]:
    assert source.file is not None
    answer = source.answer
    if answer is not None:
        first = next(iter(numbered_rows(source.file)), None)
        if first is None:
            raise UsageError(f"the source {source.label!r} is empty: {source.file} has no rows")
        if answer not in first[1] and source.verifier == "none":
            answer = None
    return load_tasks(source.file, prompt=source.prompt, answer=answer, system=source.system)[: source.count]


def _written(name: str, writing: Writing, play: Played, *, note: Note) -> Iterator[Task]:
    """Questions of a writer whose answer its solver gives as well."""
    shown, rules = _material(name, writing)
    tasks = [
        Task(id=f"{name}-{n}-{number}", prompt=(user(f"{text}\n\n{rules}"),), info={"document": where})
        for n, (where, text) in enumerate(shown)
        for number in range(writing.per_document)
    ]
    rollouts = play(f"write-{name}", SingleTurnEnvironment(tasks, rubric=_readable()), tasks, policy=writing, samples=1)
    written = dict[str, Task]()
    for task in tasks:
        for rollout in rollouts.get(task.id, ()):
            if (found := parse_written(last_text(rollout))) is not None:
                written[task.id] = Task(
                    id=task.id, prompt=(user(found[0]),), answer=found[1], info={**task.info, "written": True}
                )
    if not written:
        raise UsageError(f"the source {name!r} is empty: none of {len(tasks)} answers of its writer is a question")
    by = replace(writing, policy=writing.solver if writing.solver is not None else writing.policy)
    env = SingleTurnEnvironment([*written.values()], rubric=answer_rubric("exact"))
    solved = play(f"solve-{name}", env, [*written.values()], policy=by, samples=writing.votes)
    kept = 0
    for task in written.values():
        votes = [same_answer(stated_answer(last_text(one)), str(task.answer)) for one in solved.get(task.id, ())]
        if votes and sum(votes) >= writing.agreement * len(votes):
            kept += 1
            yield task
    note(f"{name}: {len(tasks)} asked for, {len(written)} written, {kept} verified by {writing.votes} votes")


def _readable() -> Rubric:
    def readable(completion: str) -> float:
        return float(parse_written(completion) is not None)

    return Rubric(readable)


def parse_written(text: str) -> tuple[str, str] | None:
    """Question and answer in a writer's JSON; None where there are none.

    Example:
        >>> parse_written('Here it is: {"question": "What is 2 + 2?", "answer": 4}')
        ('What is 2 + 2?', '4')
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        body = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not isinstance(body.get("question"), str) or body.get("answer") in (None, ""):
        return None
    question, answer = body["question"].strip(), str(body["answer"]).strip()
    return (question, answer) if question and answer else None


def _material(name: str, writing: Writing) -> tuple[list[tuple[str, str]], str]:
    """What the writer is shown, each with where it is from."""
    if writing.documents.endswith(".jsonl"):
        rows = numbered_rows(writing.documents)
        return [(where, json.dumps(row, ensure_ascii=False)) for where, row in rows], EXAMPLE_RULES
    paths = sorted(path for path in glob(writing.documents, recursive=True) if Path(path).is_file())
    if not paths:
        raise UsageError(f"the source {name!r} is empty: no file is called {writing.documents}")
    texts = [(path, Path(path).read_text(encoding="utf-8", errors="replace")) for path in paths]
    return [(path, text[:MAX_DOCUMENT_CHARS]) for path, text in texts if text.strip()], WRITING_RULES


def mixed_questions(sources: Sequence[OpenSource], mix: int | None, *, seed: int) -> list[Question]:
    """The questions of all sources, or `mix` of them by weight, in an order drawn by the seed.

    Where a source has too few, the others give more.
    """
    streams = {one.source.label: list(one.questions) for one in sources}
    for name, questions in streams.items():
        Random(f"data/{seed}/source/{name}").shuffle(questions)
    weights = {one.source.label: one.source.weight for one in sources}
    if mix is None:
        weights = {name: float(len(questions)) for name, questions in streams.items()}
    rng, out = Random(f"data/{seed}/mix"), list[Question]()
    while streams and (mix is None or len(out) < mix):
        (name,) = rng.choices([*streams], [weights[one] for one in streams])
        out.append(streams[name].pop())
        if not streams[name]:
            del streams[name]
    return out
