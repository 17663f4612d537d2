"""Verification of what was played: turn by turn in the environment (`VerifiedWorldEnvironment`), or as a rubric.

`OracleRubric` scores rollouts: the reward is acceptance; the parts measure what was done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args, runtime_checkable

from wanderlust.environment import Episode
from wanderlust.errors import UsageError, one_line
from wanderlust.types import Policy, Rollout, Score, Trajectory
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import Gate, World
from wanderlust_worlds.verification.online import TurnGate, apply_turn_verdict
from wanderlust_worlds.verification.oracle import Oracle, TimeWindow
from wanderlust_worlds.verification.verdict import Compat, JudgeAnswer, Verdict, read_verdict
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.verification.world_judge import WorldJudge, resolve_world_judge, verify_with_judge
from wanderlust_worlds.wrap.world_environment import WorldEnvironment, log_of

LAST_TURN_VERIFIED = "finished"
"""The reason why a world stopped when its last turn was verified and not rejected."""


class ScenarioGrader(Protocol):
    """Grades logs of one scenario by more than its oracle, such as facts that texts must state."""

    def verdict(self, log: Sequence[LogEntry], *, compat: Compat = "strict") -> Verdict:
        """The verdict on a log."""
        ...

    async def judged_verdict(
        self, log: Sequence[LogEntry], judge: Policy | WorldJudge, *, compat: Compat = "strict"
    ) -> Verdict:
        """The verdict of the grader and a judge: both must accept. Raises PolicyFailure when the judge fails."""
        ...


@runtime_checkable
class GradesScenarios(Protocol):
    """An environment whose scenarios have graders."""

    def grader_of(self, scenario: Scenario, window: TimeWindow | None) -> ScenarioGrader:
        """The grader of a scenario; `window` bounds how far timed acts may be off."""
        ...


class VerifiedWorldEnvironment(WorldEnvironment):
    """Plays scenarios turn by turn: each turn is verified before the next begins, by a judge where one is given.

    The end of the last turn is the end of the world, unless there are milestones or minefields that may still count.
    The state of a rollout has the last `verdict` besides; the judge's answers are in it. Without a judge a turn that
    only one could decide goes on, and the last verdict says `undecided`. `limits` and all else as of WorldEnvironment.
    """

    def __init__(
        self,
        *args: Any,
        judge: Policy | WorldJudge | str | None = None,
        judge_model: str | None = None,
        compat: Compat = "strict",
        window: TimeWindow | None = None,
        **options: Any,
    ):
        """`judge` is a policy or the name of one, `judge_model` the endpoint's model. Raises UsageError for others."""
        super().__init__(*args, **options)
        if compat not in get_args(Compat):
            raise UsageError(f"compat is {compat!r}, expected one of {', '.join(get_args(Compat))}")
        if window is not None and not isinstance(window, TimeWindow):
            raise UsageError(f"window is {window!r}, expected a TimeWindow")
        self.judge, self.compat, self.window = resolve_world_judge(judge, judge_model), compat, window
        self._oracles: dict[str, tuple[Scenario, Oracle]] = {}

    def oracle_of(self, scenario: Scenario) -> Oracle:
        """The oracle of a scenario, made once."""
        cached = self._oracles.get(scenario.id)
        if cached is None or cached[0] is not scenario:
            cached = self._oracles[scenario.id] = scenario, Oracle.of(scenario, self.window)
        return cached[1]

    def gate_of(self, scenario: Scenario) -> Gate | None:
        """A gate that leaves the ends of turns to `on_turn_end`, which can wait for a judge."""
        return TurnGate(oracle=self.oracle_of(scenario), compat=self.compat, defer=True)

    async def on_turn_end(self, world: World, episode: Episode) -> None:
        """Verify the turn that has just ended, and let the world go on or stop it."""
        if world.stopped:
            return
        oracle = self.oracle_of(self.scenario(episode.task))
        turn = TurnGate(oracle=oracle, compat=self.compat).turn(world)
        verdict = await self._verdict(world.log, episode, oracle, upto=turn)
        world.note_decision(turn, verdict.decision, one_line(str(verdict), 500))
        apply_turn_verdict(world, verdict)
        if not world.stopped and turn == oracle.turns - 1 and all(name in world.done for name in oracle.marked):
            world.stop(LAST_TURN_VERIFIED)

    async def on_episode_end(self, world: World, episode: Episode) -> None:
        """The verdict on the whole."""
        oracle = self.oracle_of(self.scenario(episode.task))
        verdict = await self._verdict(world.log, episode, oracle, upto=None)
        episode.state["verdict"] = verdict.record()

    async def _verdict(self, log: Sequence[LogEntry], episode: Episode, oracle: Oracle, *, upto: int | None) -> Verdict:
        answers: tuple[JudgeAnswer, ...] = episode.state.setdefault("answers", ())
        if self.judge is None:
            return verify(log, oracle, compat=self.compat, upto=upto)
        verdict = await verify_with_judge(log, oracle, self.judge, answers=answers, compat=self.compat, upto=upto)
        episode.state["answers"] = verdict.answers
        return verdict


DEFAULT_WEIGHTS: Mapping[str, float] = {"accepted": 1.0}
"""Weights of the parts: acceptance alone."""


class OracleRubric:
    """Scores rollouts of worlds by their logs: guarantees equal scores for equal logs.

    Parts, from 0 to 1: `accepted`; `done`, the share of the oracle's acts that were certainly done; `clean`, one over
    one plus the number of extra writes; `ordered` and `timely`, the share of acts done in order and in time; `kept`,
    the share of milestones and minefields that were kept. The reward is their weighted sum. The metric `undecided` is
    1 where only a judge could tell, which counts as not accepted; `simulated_seconds` is the time of the agent's last
    action, from the start. Notes have the verdict's text.

    A verdict in the rollout's state (`VerifiedWorldEnvironment`) is taken as it is; otherwise the log is verified here,
    by the environment's grader where it has one (`GradesScenarios`): then both it and the judge must accept.
    """

    def __init__(
        self,
        env: WorldEnvironment,
        *,
        judge: Policy | WorldJudge | str | None = None,
        compat: Compat = "strict",
        window: TimeWindow | None = None,
        weights: Mapping[str, float] = DEFAULT_WEIGHTS,
    ):
        """`env` knows the scenarios. `weights` by part: `{"accepted": 1, "done": 0.2}` shapes a reward for training."""
        self.env, self.compat, self.window, self.weights = env, compat, window, dict(weights)
        self.judge = resolve_world_judge(judge)
        self._verifiers: dict[str, tuple[Scenario, Oracle | ScenarioGrader]] = {}

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The score of a seat; all seats of a team share it. Raises UsageError for a rollout without a log."""
        verdict = await self.verdict(rollout)
        parts = verdict_parts(verdict)
        return Score(
            reward=sum(weight * parts[name] for name, weight in self.weights.items()),
            parts=parts,
            metrics={
                "undecided": float(verdict.decision == "undecided"),
                "judged": float(len(verdict.answers)),
                "simulated_seconds": seconds_until_last_action(log_of(rollout)),
            },
            notes={"verdict": one_line(str(verdict), 1_000)},
        )

    async def verdict(self, rollout: Rollout) -> Verdict:
        """The verdict on a rollout: the environment's own where it left one."""
        left = rollout.state.get("verdict")
        if left is not None:
            return read_verdict(left)
        log, scenario = log_of(rollout), self.env.scenario(rollout.task)
        if self._verifiers.get(scenario.id, (None,))[0] is not scenario:
            make = self.env.grader_of if isinstance(self.env, GradesScenarios) else Oracle.of
            self._verifiers[scenario.id] = scenario, make(scenario, self.window)
        verifier = self._verifiers[scenario.id][1]
        if not isinstance(verifier, Oracle):
            if self.judge is None:
                return verifier.verdict(log, compat=self.compat)
            return await verifier.judged_verdict(log, self.judge, compat=self.compat)
        if self.judge is None:
            return verify(log, verifier, compat=self.compat)
        return await verify_with_judge(log, verifier, self.judge, compat=self.compat)


def seconds_until_last_action(log: Sequence[LogEntry]) -> float:
    """Simulated seconds until the agent did something for the last time; 0 when it did nothing."""
    return max((line.time - log[0].time for line in log if line.by == "agent"), default=0.0)


def verdict_parts(verdict: Verdict) -> dict[str, float]:
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
