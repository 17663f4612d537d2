"""What verification of worlds is worth: right verdicts on perturbed oracles, its speed, one verdict under any load.

Speed is processor time of this process, the best of several rounds; the world is the one of `bars_worlds`, 1.7 MB.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from benchmarks.bar import Bar
from benchmarks.verifier.confusion import confusion
from benchmarks.verifier.paraphrases import paraphrase_judge
from benchmarks.verifier.perturbations import ALL_PERTURBATIONS as KINDS

from bars_worlds import SHELVES, spent, universe
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollouts
from wanderlust.types import Message, ToolCall, assistant
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.wrap.verified_environment import VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import thinking_time_per_token

SCENARIOS, CYCLES, RUNS = 100, 200, 100
TEXT = "Please answer before Monday."


def verdict_bars() -> Iterator[Bar]:
    """Perturbed oracles of scenarios whose acts look alike, with and without a judge."""
    found = asyncio.run(confusion(range(SCENARIOS)))
    note = f"{len(KINDS)} kinds, {found.total:,} verdicts; right logs rejected: {found.rejected_wrongly}"
    share = 100 * found.right / found.total
    yield Bar(name="worlds: right verdicts", figure=share, bar=99, aim=100, unit="%", better="higher", note=note)
    yield Bar(name="worlds: wrong logs accepted", figure=found.accepted_wrongly, bar=0, aim=0, note="of those verdicts")
    valid = [KINDS["another allowed order"]]
    greedy = asyncio.run(confusion(range(SCENARIOS), compat="are", kinds=valid)).judged[valid[0].name]["reject"]
    ours = asyncio.run(confusion(range(SCENARIOS), kinds=valid)).judged[valid[0].name]["reject"]
    note = f"of {SCENARIOS} in another allowed order; first come, first served rejects {greedy}"
    yield Bar(name="worlds: right logs rejected", figure=ours, bar=0, aim=0, note=note)


def big(apps: Sequence[Any]) -> Scenario:
    """Two turns in the large world: mails, an answer, changes on shelves."""
    ui, _, _, mail, *shelves = apps
    ids = [list(shelf.items)[n] for n, shelf in enumerate(shelves[:SHELVES])]
    with capture(*apps) as story:
        asked = story.user(ui).send_message_to_agent("Write to both, and give the rows new titles.")
        first = story.agent(mail, after=asked).send_email(recipients=["a@example.org"], content=TEXT)
        other = story.agent(mail, after=asked).send_email(recipients=["a@example.org"], content="Noted.")
        acts = [first, other]
        for shelf, row in zip(shelves, ids, strict=True):
            acts.append(story.agent(shelf, after=asked).retitle(row, "new"))
        told = story.agent(ui, after=acts).send_message_to_user("Done.")
        reply = story.env(mail, after=told, delay=60).send_email_to_user_only("a@example.org", "Re", "Yes.")
        more = story.user(ui, after=reply).send_message_to_agent("And answer.")
        last = story.agent(mail, after=more).reply_to_email(email_id=reply, content=TEXT)
        story.agent(ui, after=last).send_message_to_user("Done.")
    return Scenario(id="big", apps=apps, events=story.events)


def speed_bar(scenario: Scenario) -> Bar:
    """A world from its start to its end by the oracle, and the verdict on it."""
    oracle = Oracle.of(scenario)
    logs: list[list[LogEntry]] = []

    def cycle() -> None:
        for seed in range(CYCLES):
            log = list(play_oracle(scenario, seed).log)
            assert verify(log, oracle).accepted
            logs[:] = [log]

    def judge() -> None:
        for _ in range(CYCLES):
            verify(logs[0], oracle)

    figure, alone = CYCLES / spent(cycle), spent(judge) / CYCLES * 1e6
    note = f"{len(oracle.acts)} acts; verification {alone:.0f} µs; the oracle, made once, {made(scenario):.1f} ms"
    name = "worlds: oracle cycles with verification, 1.7 MB"
    return Bar(name=name, figure=figure, bar=200, aim=1_000, unit="/s", better="higher", note=note)


def made(scenario: Scenario) -> float:
    """Milliseconds to make an oracle."""
    return spent(lambda: Oracle.of(scenario)) * 1e3


def agent(messages: Sequence[Message], rng: Random) -> str | Message:
    """Does the first turn in another order and in its own words, with reads between."""
    turn = sum(m.role == "assistant" for m in messages)
    mail = {"recipients": ["a@example.org"], "content": "Kindly reply ahead of Monday."}
    if turn == 0:
        calls = [("Emails__list_emails", {"limit": 2}), ("Emails__send_email", {**mail, "content": "Written down."})]
        calls += [("Emails__send_email", mail)]
        return assistant("", *(ToolCall(id=f"{n}", name=k, arguments=json.dumps(v)) for n, (k, v) in enumerate(calls)))
    return "Done."


async def outcomes(concurrency: int, count: int) -> set[str]:
    """What that many runs of one scenario come to: their verdicts and the hashes of their logs."""
    env = VerifiedWorldEnvironment([big(universe())], thinking=thinking_time_per_token(0.1), judge=paraphrase_judge())
    tasks, policy = env.tasks(), Scripted(agent)
    async with rollouts(env, tasks, policy, group_size=count, concurrency=concurrency) as groups:
        played = [r async for group in groups for r in group.rollouts]
    assert all(r.error is None for r in played)
    return {json.dumps([r.state["digest"], r.state["verdict"]], sort_keys=True) for r in played}


def stable_bar() -> Bar:
    """Concurrency in this process, and other processes whose strings hash otherwise."""
    found = set[str]()
    for concurrency in (1, 8, 64):
        found |= asyncio.run(outcomes(concurrency, RUNS))
    code = "import asyncio; from bars_oracle import outcomes; print(*asyncio.run(outcomes(8, 10)), sep='\\n')"
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        found |= set(done.stdout.splitlines())
    note = f"{RUNS} runs each at concurrency 1, 8 and 64, and in two processes that hash strings otherwise"
    return Bar(name="worlds: verdicts and logs of one agent", figure=len(found), bar=1, aim=1, note=note)


def bars() -> Iterator[Bar]:
    """The verdicts, then what they cost."""
    yield from verdict_bars()
    yield speed_bar(big(universe()))
    yield stable_bar()
