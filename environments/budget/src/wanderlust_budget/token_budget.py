"""Any environment under a token budget that the policy is told, or at a level of effort that it is asked for.

`TokenBudget` ends each task's prompt with one line and rewards the length of what follows:

| kind | line | reward |
|---|---|---|
| `exact` | `Think for 120 tokens.` | task reward - alpha x tokens away from the budget |
| `at_most` | `Think for at most 120 tokens.` | task reward x clip(alpha x tokens left + 1/2, 0, 1) |
| `effort` | `Effort: low.` | task reward - price of the level x tokens / `max_tokens` |
| `none` | | task reward, for penalties alone |

Source of the first two: LCPO, of the models L1-Exact and L1-Max (arXiv 2503.04697), with alpha .0003 for budgets up to
4,000 tokens. The tokens are those of all that the seat writes in its episode, answers included. `penalties` subtract a
price for each token written, each token of the longest context, and each turn, whatever the kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, prod
from random import Random
from typing import Any, Literal, Self, TypeAlias, get_args

from wanderlust.agent import Agent, release_conversation
from wanderlust.environment import Environment, Episode, WrappedEnvironment
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.policies.resolve import make_player
from wanderlust.rubrics.lengths import (
    TASK_REWARD,
    completion_tokens,
    context_tokens,
    count_pieces,
    reports_tokens,
    turns,
)
from wanderlust.rubrics.rubric import Reward, Rubric, gate, metric
from wanderlust.tasks.registry import environment_within
from wanderlust.types import (
    Completion,
    Group,
    GroupRubric,
    Message,
    Policy,
    Rollout,
    RubricLike,
    Score,
    Task,
    Tool,
    Trajectory,
    user,
)

BudgetKind: TypeAlias = Literal["exact", "at_most", "effort", "none"]
BUDGET_KEY, EFFORT_KEY = "budget", "effort"
"""Keys of a task's `info`: the budget in tokens, or the level of effort."""
LCPO_ALPHA, LCPO_DELTA = 1.2, 0.5
"""LCPO's alpha times its largest budget (.0003 x 4,000), and the share of the reward at exactly the budget."""
EFFORT_PRICES: Mapping[str, float] = {"low": 2.0, "medium": 0.5, "high": 0.0}
"""Reward that `max_tokens` tokens cost at each level of effort."""
HELD_OUT_EVERY = 4
"""Budgets that are multiples of it are those of the other splits; `train` has the rest, so that no length is shared."""
CONFIDENCE_KEY = "ask_confidence"
CONFIDENCE_LINE = (
    "After the answer, state how sure you are that it is right, from 0 to 1, like <confidence>0.8</confidence>."
)
TOLD_LINES = re.compile(
    rf"(?:\n\n(?:Think for (?:at most )?\d+ tokens|Effort: [a-z]+)\.)?(?:\n\n{re.escape(CONFIDENCE_LINE)})?$"
)
"""The lines, as they stand at the end of a message."""


def told_lines(task: Task) -> str:
    """The lines that tell the policy the budget or effort of a task, and ask for confidence; empty without any."""
    lines = [f"Effort: {task.info[EFFORT_KEY]}."] if EFFORT_KEY in task.info else []
    if BUDGET_KEY in task.info:
        most = "at most " if task.info["budget_kind"] == "at_most" else ""
        lines.append(f"Think for {most}{task.info[BUDGET_KEY]} tokens.")
    return "\n\n".join([*lines, *([CONFIDENCE_LINE] if CONFIDENCE_KEY in task.info else [])])


def tell(messages: Sequence[Message], line: str) -> tuple[Message, ...]:
    """The messages with the line at the end of the last one of the user; a message of its own where there is none."""
    if not line:
        return tuple(messages)
    at = max((n for n, message in enumerate(messages) if message.role == "user"), default=-1)
    if at < 0:
        return (*messages, user(line))
    told = replace(messages[at], content=f"{messages[at].content}\n\n{line}")
    return (*messages[:at], told, *messages[at + 1 :])


class TokenBudget(WrappedEnvironment):
    """Any environment under a token budget that the policy is told, or at a level of effort: `budget,env=NAME`.

    `TokenBudget("reasoning-gym", kind="at_most", min_tokens=24, max_tokens=96, dataset="chain_sum")`: settings that are
    not its own go to the environment. A budget is drawn uniformly for each task, by its id and `budget_seed`; siblings
    share it. Multiples of HELD_OUT_EVERY are never drawn in `train`, and nothing else is in other splits, so that
    evaluation is on lengths that training has not seen. (Where no budget is left for a split, any is drawn.) The score
    has all parts of the environment's own rubric, that rubric's reward as `task_reward`, and the rewards of length.
    """

    def __init__(
        self,
        env: Environment | str = "calculator",
        *,
        kind: BudgetKind = "at_most",
        min_tokens: int = 100,
        max_tokens: int = 4000,
        alpha: float | None = None,
        budget_seed: int = 0,
        penalties: Mapping[str, float] | str = "",
        ask_confidence: bool = False,
        **settings: Any,
    ):
        """`penalties` are rewards lost per token or turn, as a mapping or like `completion:0.001 context:0.0001`.

        Those of PENALTIES; default of `alpha`: LCPO_ALPHA / max_tokens. With `ask_confidence` the policy is also asked
        to state its confidence, which traits of reasoning are measured on. Raises UsageError for budgets that cannot be
        kept, and for settings that do not fit.
        """
        self.env = environment_within(env, settings)
        if kind not in get_args(BudgetKind):
            raise UsageError(f"kind is {kind!r}, and must be one of {', '.join(get_args(BudgetKind))}")
        _check_budgets(self.env, min_tokens, max_tokens)
        alpha = LCPO_ALPHA / max_tokens if alpha is None else alpha
        if not (isinstance(alpha, int | float) and isfinite(alpha) and alpha > 0):
            raise UsageError(f"alpha is {alpha!r}, and must be a number above 0")
        self.kind, self.budget_seed, self.ask_confidence = kind, budget_seed, bool(ask_confidence)
        self.min_tokens, self.max_tokens = min_tokens, max_tokens
        rewards = [*_length_rewards(kind, alpha, max_tokens), *_penalties(penalties)]
        settings = {"kind": kind, "alpha": alpha, "max_tokens": max_tokens}
        self.rubric = BudgetRubric(self.env.rubric, rewards, settings)
        if kind == "effort":
            self.group_by = EFFORT_KEY
        if kind != "none" or penalties:
            self.oracle_bar = None  # lengths take something from the oracle's reward, too
        self.players: Mapping[str, Callable[[], Policy]] = {
            name: partial(self._player, name) for name in self.env.players
        }
        """Those of the environment, which do not see the line; a teacher that thinks is stretched to the budget."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The environment's tasks, each with a budget."""
        given = self.env.tasks(split)
        told = (self._told(task, split) for task in given)
        return list(told) if isinstance(given, Sequence) else told

    async def run(self, episode: Episode) -> None:
        """Play the task; the policy is told once, at the end of the prompt or of what it is shown first.

        Raises UsageError when the policy cannot write as many tokens as the budget.
        """
        for agent in episode.agents.values():
            self._check_room(agent, episode.task)
        if episode.task.prompt:
            await self.env.run(episode)
            return
        line, frozen = told_lines(episode.task), self.frozen_seats
        agents: Any = {s: a if s in frozen else _ToldAgent(a, line) for s, a in episode.agents.items()}
        inner = Episode(episode.task, agents, episode.seed)
        inner.state, inner.rewards = episode.state, episode.rewards
        await self.env.run(inner)

    def oracle(self, task: Task) -> Policy | None:
        """The environment's, which does not see the line."""
        policy = self.env.oracle(task)
        return policy and BudgetBlind(policy)

    async def exact(self, policy: Policy, *, name: str) -> list[dict[str, Any]] | None:
        """The environment's figures, where the policy is told nothing. Raises UsageError where it is."""
        if self.tells:
            raise UsageError("exact figures are those of a policy that is told nothing: leave --exact out")
        blind = policy.policy if isinstance(policy, StretchedTeacher) else policy
        return await self.env.exact(blind.policy if isinstance(blind, BudgetBlind) else blind, name=name)

    def duel(self) -> Environment | None:
        """The environment's, where the policy is told nothing; else None: it has no budgets."""
        return None if self.tells else self.env.duel()

    @property
    def tells(self) -> bool:
        """Whether the policy reads a line that the environment does not have."""
        return self.kind != "none" or self.ask_confidence

    def _told(self, task: Task, split: str) -> Task:
        rng = Random(f"budget/{self.budget_seed}/{task.id}")
        info: dict[str, Any] = {"budget_kind": self.kind} if self.kind != "none" else {}
        if self.kind == "effort":
            info[EFFORT_KEY] = rng.choice([*EFFORT_PRICES])
        elif self.kind != "none":
            lengths = range(self.min_tokens, self.max_tokens + 1)
            held_out = [n for n in lengths if n % HELD_OUT_EVERY == 0]
            seen = [n for n in lengths if n % HELD_OUT_EVERY]
            info[BUDGET_KEY] = rng.choice((seen if split == "train" else held_out) or lengths)
        if self.ask_confidence:
            info[CONFIDENCE_KEY] = True
        told = replace(task, info={**task.info, **info})
        return replace(told, prompt=tell(task.prompt, told_lines(told))) if task.prompt else told

    def _check_room(self, agent: Agent, task: Task) -> None:
        room, budget = getattr(agent.policy, "longest_answer", None), task.info.get(BUDGET_KEY, 0)
        if room is not None and budget > room * agent.limits.max_turns:
            raise UsageError(
                f"the budget of {task.id} is {budget} tokens and the policy's answers have at most {room}: raise "
                "max_tokens, or lower the budgets"
            )

    def _player(self, name: str) -> Policy:
        policy = BudgetBlind(make_player(self.env, name))
        return StretchedTeacher(policy, self.min_tokens, self.max_tokens) if name == "teacher" else policy


def _check_budgets(env: Environment, min_tokens: int, max_tokens: int) -> None:
    whole = type(min_tokens) is int and type(max_tokens) is int
    if not whole or not 1 <= min_tokens <= max_tokens:
        raise UsageError(f"budgets go from {min_tokens} to {max_tokens} tokens: whole numbers, from 1 on, are wanted")
    for name in ("max_episode_tokens", "max_context_tokens"):
        bound = getattr(env.limits, name)
        if bound is not None and max_tokens >= bound:
            raise UsageError(f"budgets go up to {max_tokens} tokens and the environment's {name} is {bound}")


PENALTIES: Mapping[str, Callable[[Trajectory], int]] = {
    "completion": completion_tokens,
    "context": context_tokens,
    "turns": turns,
}
"""Counts that a linear penalty may be put on."""


def _penalties(given: Mapping[str, float] | str) -> Iterator[Reward]:
    """One part with a negative weight for each penalty."""
    pairs = [pair.partition(":")[::2] for pair in given.split()] if isinstance(given, str) else [*given.items()]
    for name, value in pairs:
        try:
            price = float(value)
        except ValueError:
            price = -1.0
        if name not in PENALTIES or not 0 <= price < float("inf"):
            raise UsageError(f"a penalty is NAME:PRICE, NAME one of {', '.join(PENALTIES)}, not {name}:{value}")
        yield Reward(PENALTIES[name], -price, name=f"{name}_penalty")


def _length_rewards(kind: BudgetKind, alpha: float, max_tokens: int) -> Iterator[Reward]:
    """The reward of the kind, and metrics."""

    def budget_error(trajectory: Trajectory, info: Mapping[str, Any]) -> float:
        return float(abs(completion_tokens(trajectory) - info[BUDGET_KEY]))

    def within_budget(trajectory: Trajectory, info: Mapping[str, Any]) -> float:
        left: int = info[BUDGET_KEY] - completion_tokens(trajectory)
        return min(1.0, max(0.0, alpha * left + LCPO_DELTA))

    def effort_cost(trajectory: Trajectory, info: Mapping[str, Any]) -> float:
        return EFFORT_PRICES[info[EFFORT_KEY]] * completion_tokens(trajectory) / max_tokens

    def relative_error(trajectory: Trajectory, info: Mapping[str, Any]) -> float:
        budget: int = info[BUDGET_KEY]
        return abs(completion_tokens(trajectory) - budget) / budget

    def over_budget(trajectory: Trajectory, info: Mapping[str, Any]) -> float:
        return float(completion_tokens(trajectory) > info[BUDGET_KEY])

    def tokens_unknown(trajectory: Trajectory) -> float:
        return float(not reports_tokens(trajectory))

    if kind == "exact":
        yield from (Reward(budget_error, -alpha), metric(relative_error))
    elif kind == "at_most":
        yield from (gate(within_budget), metric(over_budget))
    elif kind == "effort":
        yield Reward(effort_cost, -1.0)
    yield from (metric(completion_tokens), metric(tokens_unknown))


def _task_reward(trajectory: Trajectory) -> float:
    if trajectory.score is None:
        raise RubricFailure("the environment gave no reward, and it has no rubric")
    return trajectory.score.reward


class BudgetRubric(Rubric):
    """The environment's rubric, and rewards of length beside it; every part of both is in the score."""

    def __init__(self, own: RubricLike | None, rewards: Iterable[Reward], settings: Mapping[str, Any]):
        """`own` is the environment's; `settings` are those that the rewards of length go by, for the record."""
        self.rewards = tuple(rewards)
        super().__init__(Reward(_task_reward, name=TASK_REWARD), *self.rewards)
        self.own, self.settings = own, dict(settings)
        self.compares = isinstance(own, GroupRubric) and own.compares

    def __add__(self, other: Rubric) -> Self:
        if not isinstance(self.own, Rubric):
            return NotImplemented
        return type(self)(self.own + other, self.rewards, self.settings)

    @property
    def parts(self) -> tuple[Reward, ...]:
        """Those of the environment's rubric, and those of length."""
        return (*(self.own.parts if isinstance(self.own, Rubric) else ()), *super().parts)

    def asking(self, policy: Policy) -> Self:
        """The same with another policy for the judges of the environment's rubric. UsageError where it has none."""
        if not isinstance(self.own, Rubric):
            raise UsageError("no part of this rubric asks a judge")
        return type(self)(self.own.asking(policy), self.rewards, self.settings)

    def contributions(self, parts: Mapping[str, float]) -> dict[str, float]:
        """As a rubric's; the task's reward is split into what the parts of the environment's rubric add to it."""
        shares = super().contributions(parts)
        if not isinstance(self.own, Rubric):
            return shares
        gates = prod(parts[one.name] for one in super().parts if one.role == "gate" and one.name in parts)
        own = self.own.contributions({name: value for name, value in parts.items() if name in self._own_names})
        shares.pop(TASK_REWARD, None)
        return shares | {name: share * gates for name, share in own.items()}

    @property
    def _own_names(self) -> set[str]:
        return {one.name for one in self.own.parts} if isinstance(self.own, Rubric) else set()

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The environment's score, with rewards of length. RubricFailure where both have a part of one name."""
        own = trajectory.score if self.own is None else await self.own.score(rollout, trajectory)
        return await self._with_lengths(rollout, trajectory, own)

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The environment's final scores, with rewards of length."""
        assert isinstance(self.own, GroupRubric)
        alone = [replace(r, trajectories=[self._without_lengths(t) for t in r.trajectories]) for r in group.rollouts]
        scores = iter(await self.own.compare(replace(group, rollouts=alone), seat))
        played = [(r, t) for r in group.rollouts for t in r.trajectories if t.seat == seat]
        return [await self._with_lengths(r, t, next(scores)) for r, t in played]

    def _without_lengths(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory as the environment's rubric scored it."""
        score, ours = trajectory.score, {reward.name for reward in super().parts}
        if score is None:
            return trajectory
        parts, metrics = ({n: v for n, v in kept.items() if n not in ours} for kept in (score.parts, score.metrics))
        own = replace(score, reward=score.parts[TASK_REWARD], parts=parts, metrics=metrics)
        return replace(trajectory, score=own)

    async def _with_lengths(self, rollout: Rollout, trajectory: Trajectory, own: Score | None) -> Score:
        lengths = await super().score(rollout, replace(trajectory, score=own))
        if own is None:
            return lengths
        if own_names := {*own.parts} & {*lengths.parts} or {*own.metrics} & {*lengths.metrics}:
            raise RubricFailure(f"the environment's rubric has a part {min(own_names)!r} already")
        return replace(
            lengths,
            parts={**own.parts, **lengths.parts},
            metrics={**own.metrics, **lengths.metrics},
            notes=own.notes,
        )


class _ToldAgent:
    """A seat whose first observation ends with a line; everything else is the agent's."""

    _agent: Agent
    _line: str

    def __init__(self, agent: Agent, line: str):
        vars(self).update(_agent=agent, _line=line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._agent, name, value)

    async def act(self, *observation: Message, tools: Sequence[Tool] = ()) -> Message:
        """As the agent's."""
        first = not self._agent.trajectory.turns
        return await self._agent.act(*(tell(observation, self._line) if first else observation), tools=tools)

    async def act_with_context(self, messages: Sequence[Message], tools: Sequence[Tool] = (), **more: Any) -> Message:
        """As the agent's; the line ends the first message of the user."""
        at = next((n for n, message in enumerate(messages) if message.role == "user"), len(messages))
        told = (*tell(messages[: at + 1], self._line), *messages[at + 1 :])
        return await self._agent.act_with_context(told, tools, **more)


class BudgetBlind:
    """A policy that does not see the line."""

    def __init__(self, policy: Policy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer to the conversation without the line."""
        blind = [replace(m, content=TOLD_LINES.sub("", m.content)) if m.role == "user" else m for m in messages]
        return await self.policy.complete(blind, tools, key=key)

    def release(self, key: str) -> None:
        """As the policy's."""
        release_conversation(self.policy, key)


THINKING = re.compile(r"^(?P<before>.*?<think>)(?P<thinking>.+?)(?P<after></think>.*)$", re.DOTALL)
TOLD_TOKENS = re.compile(r"\n\nThink for (?:at most )?(\d+) tokens\.(?:\n\n|$)")
TEACHER_ERROR = 0.5
"""Largest share by which a teacher misses a budget: it is imitated for the form, and the length is left to learn."""


@dataclass(frozen=True, slots=True)
class StretchedTeacher:
    """Repeats or leaves out words of a teacher's thinking until its answer has about as many pieces as told.

    The thinking stands between `<think>` and `</think>`. Its words are repeated in their order, or the last ones left
    out. It misses the number by up to TEACHER_ERROR, uniformly; where no number is told, the length is drawn from
    `min_tokens` to `max_tokens`.
    """

    policy: BudgetBlind
    min_tokens: int
    max_tokens: int

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The teacher's answer at that length."""
        done = await self.policy.complete(messages, tools, key=key)
        found = THINKING.match(done.message.content)
        if found is None or not found["thinking"].split():
            return done
        rng, told = Random(f"stretch/{key}/{len(messages)}"), TOLD_TOKENS.search(messages[-1].content)
        low, high = (
            (int(told[1]) * (1 - TEACHER_ERROR), int(told[1]) * (1 + TEACHER_ERROR))
            if told
            else (self.min_tokens, self.max_tokens)
        )
        left = rng.uniform(low, high) - count_pieces(found["before"] + found["after"]) - 1  # the end of the turn
        words, taken = found["thinking"].split(" "), list[str]()
        while count_pieces(" ".join([*taken, words[len(taken) % len(words)]])) <= left:
            taken.append(words[len(taken) % len(words)])
        message = replace(done.message, content=found["before"] + " ".join(taken) + found["after"])
        return replace(done, message=message)

    def release(self, key: str) -> None:
        """As the policy's."""
        self.policy.release(key)
