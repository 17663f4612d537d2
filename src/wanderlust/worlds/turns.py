"""Turns that are verified before the next one begins: in worlds by a gate, with a judge in an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wanderlust.core.contracts import Episode, Policy
from wanderlust.core.text import one_line
from wanderlust.worlds.environment import WorldEnvironment
from wanderlust.worlds.judging import Asked, judged
from wanderlust.worlds.log import Happened
from wanderlust.worlds.oracle import Oracle, Window
from wanderlust.worlds.recognition import fulfil_all, recognise
from wanderlust.worlds.scenario import Scenario
from wanderlust.worlds.verdict import Answer, Compat, Verdict
from wanderlust.worlds.verification import verify
from wanderlust.worlds.world import Gate, World

REJECTED = "rejected"
"""How the reason begins why a world has stopped whose turn was rejected."""
FINISHED = "finished"
"""Why a world has stopped whose last turn has been verified, and not rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnGate:
    """Lets a world go on to its next turn only when the finished one is not rejected; else the world stops.

    Within a turn, what waits for an act of the agent is let go as soon as the act is recognised (`recognition.py`). The
    act that ends the turn counts when the turn has been verified; what of the turn was not recognised before is then
    let go too. A turn that cannot be decided without a judge goes on.
    """

    oracle: Oracle
    compat: Compat = "strict"
    defer: bool = False
    """Leave ends of turns alone: somebody else settles them, by `settle`."""
    stops: bool = True
    """Stop the world when a turn is rejected; else it goes on as well as it can, for a verdict on the whole."""

    def __call__(self, world: World, line: Happened) -> None:
        """The gate itself."""
        action = world.action(line)
        if action is None or not line.writes:
            return
        if not action.ends_turn:
            recognise(world, line, self.oracle)
        elif not self.defer:
            verdict = verify(world.log, self.oracle, compat=self.compat, upto=self.turn(world))
            settle(world, verdict, stops=self.stops)

    def turn(self, world: World) -> int:
        """The turn that a world is in: the first whose end has not been let pass."""
        ends = (one.turn for one in self.oracle.acts if one.action.ends_turn and one.act.id not in world.done)
        return min(ends, default=self.oracle.turns - 1)


def settle(world: World, verdict: Verdict, *, stops: bool = True) -> None:
    """Let a world go on after a verdict on its turn, or stop it when the turn was rejected."""
    if stops and verdict.decision == "reject":
        world.stop(f"{REJECTED}: {verdict.reasons[0].text}")
        return
    fulfil_all(world, verdict.matched)


class VerifiedWorlds(WorldEnvironment):
    """Plays scenarios turn by turn: each turn is verified before the next begins, by a judge where one is given.

    The end of the last turn is the end of the world, unless there are milestones or minefields that may still count.
    The state of a rollout has the last `verdict` besides; the judge's answers are in it. Without a judge a turn that
    only one could decide goes on, and the last verdict says `undecided`. `limits` and all else as of WorldEnvironment.
    """

    def __init__(
        self,
        *args: Any,
        judge: Policy | Asked | None = None,
        compat: Compat = "strict",
        window: Window | None = None,
        **options: Any,
    ):
        super().__init__(*args, **options)
        self.judge, self.compat, self.window = judge, compat, window
        self._oracles: dict[str, tuple[Scenario, Oracle]] = {}

    def expected(self, scenario: Scenario) -> Oracle:
        """The oracle of a scenario, made once."""
        known = self._oracles.get(scenario.id)
        if known is None or known[0] is not scenario:
            known = self._oracles[scenario.id] = scenario, Oracle.of(scenario, self.window)
        return known[1]

    def gate_of(self, scenario: Scenario) -> Gate | None:
        """A gate that leaves the ends of turns to `turned`, which can wait for a judge."""
        return TurnGate(oracle=self.expected(scenario), compat=self.compat, defer=True)

    async def turned(self, world: World, episode: Episode) -> None:
        """Verify the turn that has just ended, and let the world go on or stop it."""
        if world.stopped:
            return
        oracle = self.expected(self.scenario(episode.task))
        turn = TurnGate(oracle=oracle, compat=self.compat).turn(world)
        verdict = await self._verdict(world.log, episode, oracle, upto=turn)
        world.decided(turn, verdict.decision, one_line(str(verdict), 500))
        settle(world, verdict)
        if not world.stopped and turn == oracle.turns - 1 and all(name in world.done for name in oracle.marked):
            world.stop(FINISHED)

    async def over(self, world: World, episode: Episode) -> None:
        """The verdict on the whole."""
        oracle = self.expected(self.scenario(episode.task))
        verdict = await self._verdict(world.log, episode, oracle, upto=None)
        episode.state["verdict"] = verdict.record()

    async def _verdict(self, log: Sequence[Happened], episode: Episode, oracle: Oracle, *, upto: int | None) -> Verdict:
        known: tuple[Answer, ...] = episode.state.setdefault("answers", ())
        if self.judge is None:
            return verify(log, oracle, compat=self.compat, upto=upto)
        verdict = await judged(log, oracle, self.judge, answers=known, compat=self.compat, upto=upto)
        episode.state["answers"] = verdict.answers
        return verdict
