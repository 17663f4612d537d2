"""Worlds scored like everything else: the reward is that the verifier accepts; what was done is in the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wanderlust.core.contracts import Policy
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout, Score, Trajectory
from wanderlust.worlds.environment import WorldEnvironment, log_of
from wanderlust.worlds.judging import Asked, judged
from wanderlust.worlds.log import Happened
from wanderlust.worlds.oracle import Oracle, Window
from wanderlust.worlds.scenario import Scenario
from wanderlust.worlds.verdict import Compat, Verdict, read_verdict
from wanderlust.worlds.verification import verify

WEIGHTS: Mapping[str, float] = {"accepted": 1.0}
"""What counts by default: nothing but acceptance."""


class OracleRubric:
    """Scores rollouts of worlds by their logs: guarantees equal scores for equal logs.

    Parts, from 0 to 1: `accepted`; `done`, the share of the oracle's acts that were certainly done; `clean`, one over
    one plus the writes nobody asked for; `ordered` and `timely`, the share of acts done in order and in time;
    `kept`, the share of milestones and minefields that were kept. The reward is their weighted sum. The metric
    `undecided` is 1 where only a judge could tell: that counts as not accepted; `simulated_seconds` is how long the
    agent took until it did something for the last time. Notes have the verdict's words.

    A verdict that the environment left (VerifiedWorlds) is taken as it is; otherwise the log is verified here.
    """

    def __init__(
        self,
        env: WorldEnvironment,
        *,
        judge: Policy | Asked | None = None,
        compat: Compat = "strict",
        window: Window | None = None,
        weights: Mapping[str, float] = WEIGHTS,
    ):
        """`env` knows the scenarios. `weights` by part: `{"accepted": 1, "done": 0.2}` shapes a reward for training."""
        self.env, self.judge, self.compat, self.window, self.weights = env, judge, compat, window, dict(weights)
        self._oracles: dict[str, tuple[Scenario, Oracle]] = {}

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The score of a seat; all seats of a team share it. Raises UsageError for a rollout without a log."""
        verdict = await self.verdict(rollout)
        parts = parts_of(verdict)
        return Score(
            reward=sum(weight * parts[name] for name, weight in self.weights.items()),
            parts=parts,
            metrics={
                "undecided": float(verdict.decision == "undecided"),
                "judged": float(len(verdict.answers)),
                "simulated_seconds": acted_for(log_of(rollout)),
            },
            notes={"verdict": one_line(str(verdict), 1_000)},
        )

    async def verdict(self, rollout: Rollout) -> Verdict:
        """What is to be said of a rollout."""
        left = rollout.state.get("verdict")
        if left is not None:
            return read_verdict(left)
        log, oracle = log_of(rollout), self._oracle(self.env.scenario(rollout.task))
        if self.judge is None:
            return verify(log, oracle, compat=self.compat)
        return await judged(log, oracle, self.judge, compat=self.compat)

    def _oracle(self, scenario: Scenario) -> Oracle:
        known = self._oracles.get(scenario.id)
        if known is None or known[0] is not scenario:
            known = self._oracles[scenario.id] = scenario, Oracle.of(scenario, self.window)
        return known[1]


def acted_for(log: Sequence[Happened]) -> float:
    """Simulated seconds until the agent did something for the last time; 0 when it did nothing."""
    return max((line.time - log[0].time for line in log if line.by == "agent"), default=0.0)


def parts_of(verdict: Verdict) -> dict[str, float]:
    """A verdict as numbers from 0 to 1."""
    acts = max(len(verdict.matched) + len(verdict.missing), 1)
    wrong = {fault: len({r.event for r in verdict.reasons if r.fault == fault}) for fault in ("order", "time")}
    marks = verdict.marks.values()
    missed = verdict.faults("milestone") + verdict.faults("minefield")
    return {
        "accepted": float(verdict.accepted),
        "done": verdict.share,
        "clean": 1.0 / (1 + len(verdict.extra)),
        "ordered": 1.0 - wrong["order"] / acts,
        "timely": 1.0 - wrong["time"] / acts,
        "kept": sum(marks) / max(sum(marks) + missed, 1) if marks or missed else 1.0,
    }
