"""Mails and messages reworded by a policy: checked, recorded in a book, and repeated from it without the policy.

A folder has the book (`book.json`: texts and what they became), what was refused (`refused.jsonl`), the policy's
answers (`answers.db`) and the reworded stories (`NAME.json`). `life,book=FOLDER` plays in the words of the book.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure, UsageError, boundary, one_line
from wanderlust.policies.answer_cache import AnswerCache, CachedPolicy
from wanderlust.policies.resolve import PolicyOptions, open_policies, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.terminal import Table
from wanderlust.store.whole_files import write_whole
from wanderlust.types import Policy, system, user
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.described import Story, check_story, read_story
from wanderlust_life.rewording import (
    BOOK_FILE,
    answers_of,
    fault_of,
    names_of,
    story_answers,
    story_in_words,
    story_texts,
    texts_of,
)

INSTRUCTIONS = (
    "Write the message again in other words, as the same person would on another day. Keep every name, number, day, "
    "time, place, amount and every {word in braces} exactly as it is written, add no fact and leave none out. Answer "
    "with the message alone."
)
REFUSED_FILE = "refused.jsonl"
MAX_TEXTS = 1_000
"""Texts of one target that are reworded; a large universe has many more, most of them small talk."""
CALLS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RewordedTexts:
    """What became of the texts."""

    folder: Path
    asked: int
    """Different texts that the policy was given."""
    book: Mapping[str, str]
    """Those that were reworded, and what they became."""
    unchanged: int
    """Answers that are the text itself."""
    refused: Mapping[str, int]
    """By kind of fault, as of `fault_of`."""
    examples: Mapping[str, str]
    """By kind, the first fault."""
    stories: Sequence[Path]

    def table(self) -> Table:
        """A row for each outcome."""
        table = Table("texts", "number", "the first")
        table.add_row("reworded", str(len(self.book)), one_line(next(iter(self.book.values()), ""), 70))
        table.add_row("as before", str(self.unchanged), "")
        for kind, number in self.refused.items():
            table.add_row(f"refused: {kind}", str(number), one_line(self.examples[kind], 70))
        return table

    def as_dict(self) -> dict[str, Any]:
        """Plain data, without the texts."""
        return {
            "folder": str(self.folder),
            "asked": self.asked,
            "reworded": len(self.book),
            "unchanged": self.unchanged,
            "refused": dict(self.refused),
            "stories": [str(one) for one in self.stories],
        }


@dataclass(frozen=True, slots=True)
class _Target:
    """Texts that are reworded together, and what they must keep."""

    texts: Sequence[str]
    names: frozenset[str]
    answers: frozenset[str]
    story: Story | None = None


@suspended_loop()
def reword_texts(
    targets: Sequence[str],
    policy: str | Policy,
    *,
    out: Path,
    options: PolicyOptions = PolicyOptions(),  # noqa: B008 (frozen)
    max_texts: int = MAX_TEXTS,
    announce: Callable[[int, int], None] = lambda texts, characters: None,
) -> RewordedTexts:
    """Have `policy` reword the mails and messages of scenarios (ids) and stories (`.json` files); keep all in `out`.

    Of each target the first `max_texts` texts; `announce` gets their number and characters before the policy is asked.
    What loses or adds a fact, is empty, too long, or states an answer that the text did not state is refused and
    counted, and stays as it is. A story is checked whole again. The same call repeats with the folder's answers.

    Raises UsageError for what is no target, PolicyFailure where the policy fails.
    """
    found = [_target(name) for name in targets]
    if not found:
        raise UsageError("nothing is to be reworded: name scenarios, as invite/eval-0/1, or stories, as story.json")
    asked = resolve_policy(policy, AssistantLife(), options).policy if isinstance(policy, str) else policy
    out.mkdir(parents=True, exist_ok=True)
    texts = list(dict.fromkeys(text for one in found for text in one.texts[:max_texts]))
    announce(len(texts), sum(map(len, texts)))
    answers = asyncio.run(_answers(CachedPolicy(asked, AnswerCache(out)), texts, seed=options.seed))
    book, faults = dict[str, str](), dict[str, str]()
    for text, answer in answers.items():
        of = [one for one in found if text in one.texts]
        told = (fault_of(text, answer, names=one.names, answers=one.answers) for one in of)
        fault = next(filter(None, told), "")
        if fault:
            faults[text] = fault
        elif answer != text:
            book[text] = answer
    write_whole(out / BOOK_FILE, json.dumps({"texts": book}, indent=1, ensure_ascii=False) + "\n")
    rows = [{"text": text, "answer": answers[text], "fault": fault} for text, fault in faults.items()]
    write_whole(out / REFUSED_FILE, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    kinds = [fault.partition(" ")[0] for fault in faults.values()]
    return RewordedTexts(
        folder=out,
        asked=len(texts),
        book=book,
        unchanged=len(texts) - len(book) - len(faults),
        refused=dict(Counter(kinds)),
        examples=dict(reversed(list(zip(kinds, faults.values(), strict=True)))),
        stories=[_write_story(one.story, book, out) for one in found if one.story is not None],
    )


def _target(name: str) -> _Target:
    if name.endswith(".json"):
        try:
            story = read_story(Path(name).read_bytes())
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from error
        return _Target(story_texts(story), frozenset(), frozenset(story_answers(story)), story)
    scenario = scenario_of(name if "/" in name else f"{name}/eval-0/1")
    return _Target(texts_of(scenario), frozenset(names_of(scenario)), frozenset(answers_of(scenario)))


async def _answers(policy: CachedPolicy, texts: Sequence[str], *, seed: int) -> dict[str, str]:
    """What the policy makes of each text; the keys of its draws follow from the texts' order alone."""
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(number: int, text: str) -> str:
        key = f"reword/{seed}/{number}"
        async with slots:
            with boundary(PolicyFailure):
                answer = await policy.complete([system(INSTRUCTIONS), user(text)], key=key)
        policy.release(key)
        return answer.message.content.strip()

    async with open_policies([policy]):
        return dict(zip(texts, await asyncio.gather(*(one(*pair) for pair in enumerate(texts))), strict=True))


def _write_story(story: Story, book: Mapping[str, str], out: Path) -> Path:
    """The reworded story in a file, once it keeps what every family does."""
    reworded = story_in_words(story, book)
    check_story(reworded)
    place = out / f"{story.name}.json"
    write_whole(place, json.dumps(msgspec.to_builtins(reworded), indent=1, ensure_ascii=False) + "\n")
    return place
