"""Lived universes: how much is said in them, whether they agree with themselves, and the tasks that are found in them.

Processor time of this process. Word forms are runs of letters in lower case; tokens are characters divided by four.
Tasks are those of `life,universe=lived` of one seed of `eval`, every family at every level.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from statistics import mean, median
from typing import Any, NamedTuple, get_args

from benchmarks.bar import Bar

from bars_worlds import memory
from universe_answers import answers_of
from universe_faults import FAULTS, with_fault
from universe_search import FIRST_PAGE, GROWTH_SEEDS, WORD, hits_by_size, interval, literal_search, request_of
from wanderlust import rollout
from wanderlust.types import Policy, Task
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.lived.consistency import find_inconsistencies
from wanderlust_life.lived.lived_universe import LivedUniverse, make_lived_universe
from wanderlust_life.universes.generate import SizeName
from wanderlust_worlds.verification.grading import FactGrader

SMALL, MEDIUM, LARGE = 940, 50, 10
"""Universes of each size that are checked, half of them held out."""
PLANTED = 10
"""Planted faults of each kind."""
WORLDS = 1_000
LEVEL_SEEDS: Mapping[int, int] = {1: 2, 2: 1, 3: 1}
"""Seeds of the tasks of each level."""
SHAPE_SEEDS = 5
"""Further seeds of level 2 whose shapes are counted."""


def texts_of(universe: LivedUniverse) -> list[str]:
    """What was written and said."""
    life = universe.life
    mails = [one.content for one in (*life.mail.inbox.values(), *life.mail.sent.values())]
    talks = [talk for app in (life.chats, life.texts) for talk in app.conversations.values()]
    return [*mails, *(one.content for talk in talks for one in talk.messages)]


def size_bars() -> Iterator[Bar]:
    """Words and tokens of large universes, and what one costs."""
    forms, plain, prose, tokens, seconds = [], [], [], [], []
    make_lived_universe(99)  # reads the word lists
    for seed in range(3):
        started = time.process_time()
        universe = make_lived_universe(seed, "gaia2", "held")
        seconds.append(time.process_time() - started)
        texts = texts_of(universe)
        words = {word for text in texts for word in WORD.findall(text)}
        forms.append(len({word.lower() for word in words}))
        plain.append(sum(word.islower() for word in words))
        prose.append(sum(map(len, texts)) / 4)
        whole = json.dumps({name: app.state() for name, app in universe.apps.items()}, ensure_ascii=False)
        tokens.append(len(whole) / 4)
    note = f"the fewest of {len(forms)} large universes; {min(plain):,} of them in small letters; most others are names"
    yield Bar(name="universe: word forms", figure=min(forms), bar=30_000, aim=40_000, better="higher", note=note)
    note = f"mails and messages, the fewest of {len(prose)}"
    yield Bar(name="universe: tokens of prose", figure=min(prose), bar=300_000, aim=400_000, better="higher", note=note)
    note = f"all apps as JSON; from {min(tokens):,.0f}"
    yield Bar(name="universe: tokens", figure=max(tokens), bar=800_000, aim=700_000, note=note)
    note = "of a large universe, the dearest; word lists were read before"
    yield Bar(name="universe: generation, CPU", figure=max(seconds), bar=10, aim=2, unit="s", note=note)


def memory_bar() -> Bar:
    """A thousand worlds of one large universe, each written to."""
    gc.collect()
    before = memory()
    env = AssistantLife("ask-meal-proposer", universe="lived", levels=3)
    scenario = env.scenario(next(iter(env.tasks("eval"))))
    worlds = [scenario.world(seed=seed) for seed in range(WORLDS)]
    for world in worlds:
        world.call("Emails", "send_email", {"recipients": ["a@example.org"], "content": "hello"})
        world.advance(0)
    gc.collect()
    figure = (memory() - before) / 1e6
    note = "resident, universe, word lists and records included; one write in each"
    return Bar(name="universe: 1,000 live worlds", figure=figure, bar=400, aim=100, unit="MB", note=note)


def spoilt_universes(kind: str) -> Iterator[LivedUniverse]:
    """Yield lives with a fault of a kind, one for each seed whose life has what can be spoilt so."""
    for seed in range(20 * PLANTED):
        try:
            yield with_fault(make_lived_universe(2_000 + seed), kind, seed)
        except IndexError:  # a small life has no meal that was called off, for one
            continue


def consistency_bars() -> Iterator[Bar]:
    """The checker on sound universes, and on those with a planted fault."""
    found: list[str] = []
    checked = turns = 0
    for size, number_of_lives in zip(get_args(SizeName), (SMALL, MEDIUM, LARGE), strict=True):
        for number in range(number_of_lives):
            universe = make_lived_universe(1_000 + number // 2, size, "held" if number % 2 else "train")
            found += (f"{universe.name}: {line}" for line in find_inconsistencies(universe))
            checked, turns = checked + 1, turns + len(universe.ledger.turns)
    note = (
        f"in {checked} universes ({SMALL} small, {MEDIUM} medium, {LARGE} large); {turns:,} answers name what was asked"
    )
    note = "; ".join((note, *found[:3]))
    yield Bar(name="universe: inconsistencies", figure=len(found), bar=0, aim=0, note=note)
    missed, planted = dict.fromkeys(FAULTS, 0), 0
    for kind in FAULTS:
        for spoilt in islice(spoilt_universes(kind), PLANTED):
            planted += 1
            missed[kind] += not find_inconsistencies(spoilt)
    share = 100 * (1 - sum(missed.values()) / planted)
    note = f"of {planted}, {len(FAULTS)} kinds; missed: {', '.join(k for k, n in missed.items() if n) or 'none'}"
    yield Bar(
        name="universe: planted faults found", figure=share, bar=95, aim=100, unit="%", better="higher", note=note
    )


class Played(NamedTuple):
    """A task and what became of it."""

    level: int
    info: Mapping[str, Any]
    rewards: Mapping[str, float]
    texts: Sequence[tuple[bool, bool]]
    """Of each text in the place of the oracle's: whether it is right, and whether it is accepted."""
    hits: int
    """Hits of the best literal search."""
    is_found: bool
    """Whether the first page of a literal search states the answer."""


def play(env: AssistantLife, task: Task, seed: int) -> Played:
    """Play a task by each player, and judge other texts than the oracle's."""
    scenario = env.scenario(task)
    players: dict[str, Policy] = {"oracle": env.oracle(task), **{name: make() for name, make in env.players.items()}}
    rewards = {}
    for name, policy in players.items():
        score = asyncio.run(rollout(env, task, policy)).trajectories[0].score
        rewards[name] = score.reward if score is not None else 0.0
    facts = FactGrader(scenario).facts
    texts = [
        (is_right, told.hold_for(text))
        for act in scenario.oracle
        for name, told in facts.get(act.id, {}).items()
        if isinstance(act.args.get(name), str)
        for text, is_right in answers_of(told, act.args[name])
    ]
    question = scenario.info["question"]
    universe = make_lived_universe(seed, question["universe"], "held")
    hits, is_found = literal_search(request_of(scenario), universe, frozenset(question["answer"]))
    return Played(task.info["level"], question, rewards, texts, hits, is_found)


def task_bars() -> Iterator[Bar]:
    """The tasks of one or two seeds at every level."""
    played = []
    for level, seeds in LEVEL_SEEDS.items():
        env = AssistantLife(universe="lived", levels=level)
        played += [play(env, task, seed) for seed in range(seeds) for task in env.tasks_of_seeds("eval", [seed])]
    yield from reward_bars(played)
    yield from text_bars(played)
    yield from shape_bars(played)


def reward_bars(played: Sequence[Played]) -> Iterator[Bar]:
    """What the players earn."""
    by_level = {level: [one for one in played if one.level == level] for level in LEVEL_SEEDS}
    for name, bar in (("oracle", 1.0), ("nothing", 0.0), ("greedy", 0.1)):
        rate = mean(one.rewards[name] for one in played)
        note = f"{len(played)} tasks"
        if name == "greedy":
            note += "; by level " + ", ".join(
                f"{sum(one.rewards[name] for one in some):.0f} of {len(some)}" for some in by_level.values()
            )
        better = "higher" if name == "oracle" else "lower"
        yield Bar(name=f"universe: {name} passes", figure=rate, bar=bar, aim=bar, better=better, note=note)  # type: ignore[arg-type]
    share = 100 * mean(one.is_found for one in played)
    parts = "; ".join(
        f"level {n}: {100 * mean(one.is_found for one in some):.0f} %, {median(one.hits for one in some):.0f} hits"
        for n, some in by_level.items()
    )
    note = f"the answer stands in its {FIRST_PAGE} newest hits; {parts} (median)"
    yield Bar(name="universe: tasks solved by one search", figure=share, bar=20, aim=10, unit="%", note=note)


def text_bars(played: Sequence[Played]) -> Iterator[Bar]:
    """How texts are judged."""
    for is_right, name, bar in ((False, "wrong texts accepted", 1), (True, "right texts rejected", 5)):
        verdicts = [accepted for one in played for right, accepted in one.texts if right is is_right]
        share = 100 * mean(accepted is not is_right for accepted in verdicts)
        note = f"of {len(verdicts):,}, made from the oracle's"
        yield Bar(name=f"universe: {name}", figure=share, bar=bar, aim=0, unit="%", note=note)


def shape_bars(played: Sequence[Played]) -> Iterator[Bar]:
    """Families, shapes, and what a question needs."""
    env = AssistantLife(universe="lived")
    note = "26 others are in sketched universes"
    yield Bar(name="universe: families", figure=len(env.families), bar=34, aim=60, better="higher", note=note)
    medium = AssistantLife(universe="lived", levels=2)
    more = [medium.scenario(task) for task in medium.tasks_of_seeds("eval", range(1, 1 + SHAPE_SEEDS))]
    shapes = {one.info["shape"] for one in played} | {one.info["question"]["shape"] for one in more}
    joins = {n: sum(one.info["joins"] == n for one in played) for n in (1, 2, 3, 4)}
    apps = {n: sum(len(one.info["apps"]) == n for one in played) for n in (1, 2, 3, 4)}
    parts = "; ".join(
        f"level {level}: {mean(len(one.info['needed']) for one in some):.1f} records needed, "
        f"{median(one.info['rivals'] for one in some):g} rivals (median)"
        for level in LEVEL_SEEDS
        if (some := [one for one in played if one.level == level])
    )
    note = f"in {len(played) + len(more)} tasks; of those played, joins {joins}, apps {apps}; {parts}"
    yield Bar(name="universe: shapes of tasks", figure=len(shapes), bar=500, aim=1_000, better="higher", note=note)


def growth_bar() -> Bar:
    """How the hits of the best search grow, for the tasks that there are in lives of every size."""
    hits = hits_by_size()
    shared = sorted(set.intersection(*map(set, hits.values())))
    counts = {size: [n for name in shared if (n := found[name]) is not None] for size, found in hits.items()}
    middles = [median(some) for some in counts.values()]
    parts = "; ".join(
        f"{size} {median(some):g} ({interval(some)}), {100 - 100 * len(some) / len(shared):.0f} % have none"
        for size, some in counts.items()
    )
    return Bar(
        name="universe: growth of the best search's hits",
        figure=min(later / earlier for earlier, later in pairwise(middles)),
        bar=1.2,
        aim=2,
        better="higher",
        note=f"the smaller ratio of two medians; {len(shared)} tasks of 2 joins, {GROWTH_SEEDS} seeds: {parts}",
    )


def bars() -> Iterator[Bar]:
    """Memory first, while the process is small."""
    yield memory_bar()
    yield from size_bars()
    yield from consistency_bars()
    yield growth_bar()
    yield from task_bars()
