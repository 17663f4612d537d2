"""Questions about an imported inbox as a file of JSON lines: `wander inbox questions` writes it, people may edit it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from wanderlust.errors import UsageError, one_line
from wanderlust.store.whole_files import write_whole
from wanderlust_inbox.store import DATE

QuestionSplit = Literal["train", "eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailQuestion:
    """A question about an inbox, with its answer and the mails that it follows from.

    Example:
        >>> MailQuestion(id="q1", question="What does invoice 7137 come to?", answer="53.50 EUR",
        ...              sources=("m7cf72dfc2a",), asked_on="2026-03-09", split="train").kind
        'question'
    """

    id: str
    question: str
    answer: str
    """Empty where no mail has it: then "I don't know" is right."""
    sources: tuple[str, ...]
    asked_on: str
    """The day that it is asked on, after its mails, as YYYY-MM-DD."""
    split: QuestionSplit
    """All questions about one thread are in one split."""
    kind: str = "question"


def write_questions(path: Path, questions: Iterable[MailQuestion]) -> None:
    """Write the file in whole or not at all; only its user may read it. StoreError where it cannot be written."""
    lines = [json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in questions]
    write_whole(path, "".join(lines), mode=0o600, shared=True)


def read_questions(path: Path | str) -> list[MailQuestion]:
    """Read a file of questions. Raises UsageError of one line for a file that is none, with the line that is wrong."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the questions {path}: {one_line(str(error))}") from error
    questions: dict[str, MailQuestion] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            question = parse_question(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: {one_line(str(error))}") from error
        if question.id in questions:
            raise UsageError(f"{path}, line {number}: there are two questions {one_line(question.id, 40)}")
        questions[question.id] = question
    return [*questions.values()]


def parse_question(row: Any) -> MailQuestion:
    """A question from its JSON object. Raises ValueError that says what is wrong."""
    names = {field.name for field in fields(MailQuestion)}
    if not isinstance(row, dict) or not (names - {"kind"}) <= row.keys() <= names:
        raise ValueError(f"a question is a JSON object with {', '.join(sorted(names - {'kind'}))}")
    sources = row["sources"]
    if not isinstance(sources, list) or not all(
        isinstance(one, str) for one in (*sources, *row.values()) if one is not sources
    ):
        raise ValueError("sources is a list of ids, and everything else is text")
    if row["split"] not in get_args(QuestionSplit):
        raise ValueError(f"split is train or eval, not {row['split']!r}")
    if not DATE.fullmatch(row["asked_on"]):
        raise ValueError(f"asked_on is a day like 2026-05-14, not {row['asked_on']!r}")
    if not row["id"] or not row["question"].strip():
        raise ValueError("a question has an id and a text")
    return MailQuestion(**{**row, "sources": tuple(sources)})
