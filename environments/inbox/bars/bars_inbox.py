"""Generated inboxes: how fast they are made and searched, and how far scripted readers get on held-out ones."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.bar import Bar

from inbox_results import TASKS, asked
from wanderlust.policies.scripted import PerRolloutPolicy
from wanderlust_inbox.corpus import InboxPlan, generate
from wanderlust_inbox.environment import Inbox
from wanderlust_inbox.language import topics
from wanderlust_inbox.store import InboxFile, write_inbox

MAILS, SEARCHES = 50_000, 2000
READER_BARS = {"closed-book": 0.03, "bm25": 0.35, "reread": 0.6}


def search_times(inbox: InboxFile, last_names: list[str]) -> list[float]:
    """Processor times of searches in ascending order, in seconds: one to three words, half of them of a sender."""
    rng, times = Random("searches"), []
    words = [*(word for group in topics() for word in group), "the", "is", "it", "hello", "eur", "moved"]
    for _ in range(SEARCHES):
        keywords = rng.sample(words, rng.choice((1, 1, 2, 3)))
        sender = rng.choice(last_names) if rng.random() < 0.5 else ""
        after = f"2026-{rng.randint(1, 12):02}-01" if rng.random() < 0.3 else ""
        began = time.process_time()
        inbox.search(keywords, sender=sender, after=after)
        times.append(time.process_time() - began)
    return sorted(times)


def speed() -> Iterator[Bar]:
    """Generation with writing and index, and search."""
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder) / "large.inbox", time.process_time()
        corpus = generate(InboxPlan(mails=MAILS))
        write_inbox(path, corpus.mails, owner=corpus.owner.address, names=corpus.names)
        rate = MAILS / (time.process_time() - began)
        yield Bar(
            name="mails generated, written and indexed per processor second",
            figure=rate,
            bar=3000,
            aim=10_000,
            better="higher",
            note=f"one inbox of {MAILS:,} mails",
        )
        with InboxFile(path) as inbox:
            times = search_times(inbox, [person.last for person in corpus.people])
        median = 1000 * times[len(times) // 2]
        yield Bar(
            name=f"search at {MAILS:,} mails, 95th percentile",
            figure=1000 * times[int(0.95 * len(times))],
            bar=3,
            aim=1.5,
            unit="ms",
            note=f"{SEARCHES:,} searches, processor time, median {median:.2f} ms",
        )


def bars() -> Iterator[Bar]:
    """Speed, then the oracle and the readers on held-out inboxes."""
    yield from speed()
    env = Inbox()
    tasks = env.tasks("eval")[:TASKS]
    by_id = {task.id: task for task in tasks}
    oracle = asked(env, PerRolloutPolicy(lambda place: env.oracle(by_id[place.task])), tasks)
    yield Bar(name="oracle: right answers", figure=oracle.right, bar=1, aim=1, better="higher", note=oracle.note)
    for name, bar in READER_BARS.items():
        result = asked(env, env.players[name](), tasks)
        yield Bar(name=f"reader `{name}`: right answers", figure=result.right, bar=bar, aim=bar, note=result.note)
    for name in ("silent", "thesaurus"):
        result = asked(env, env.players[name](), tasks)
        note = f"no bar: for comparison; {result.note}"
        yield Bar(name=f"reader `{name}`: right answers", figure=result.right, bar=1, aim=1, note=note, promised=False)
