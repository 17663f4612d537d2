"""Generated inboxes with their questions, kept as files in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from wanderlust_inbox.corpus import Corpus, InboxPlan, generate
from wanderlust_inbox.questions import InboxQuestion, make_questions
from wanderlust_inbox.store import InboxFile, write_inbox

QUESTIONS_PER_MAIL = 0.08
"""Questions of an inbox, by its mails."""
SOURCES = ("corpus.py", "language.py", "questions.py", "store.py", "words.txt", "topics.txt", "phrases.txt")
"""Files that an inbox depends on: another text is another inbox."""


def inbox_cache_folder() -> Path:
    """`$XDG_CACHE_HOME/wanderlust/inboxes`, below `~/.cache` where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "wanderlust" / "inboxes"


@cache
def generator_digest() -> str:
    """Of the files that make inboxes."""
    here = files(__package__ or "")
    return sha256(b"\0".join((here / name).read_bytes() for name in SOURCES)).hexdigest()[:12]


def generated_inbox(plan: InboxPlan, folder: Path | None = None) -> Path:
    """The file of a plan's inbox, with its questions; written if it is not there yet.

    The name has the plan and the digest of the generator, so that a file never fits another version. Any number of
    processes may ask at once: each writes a file of its own, and the last one takes the name.
    """
    path = (folder or inbox_cache_folder()) / f"{plan.name}-{generator_digest()}.inbox"
    if not path.exists():
        corpus = generate(plan)
        about = {split: [asdict(one) for one in asked] for split, asked in questions_of(corpus, plan).items()}
        write_inbox(path, corpus.mails, owner=corpus.owner.address, names=corpus.names, about=about)
    return path


def questions_of(corpus: Corpus, plan: InboxPlan) -> Mapping[str, list[InboxQuestion]]:
    """The questions of a plan's inbox: of the kinds of training, and of those held out."""
    count = round(plan.mails * QUESTIONS_PER_MAIL)
    return {
        "questions": make_questions(corpus, plan, count=count),
        "held_out": make_questions(corpus, plan, count=count, held_out_kinds=True),
    }


def stored_questions(inbox: InboxFile, *, held_out_kinds: bool = False) -> list[InboxQuestion]:
    """The questions that a generated inbox was written with."""
    rows = inbox.about["held_out" if held_out_kinds else "questions"]
    return [InboxQuestion(**{**row, "sources": tuple(row["sources"])}) for row in rows]
