"""The core types, in the order data flows: Message, Task, Tokens, Turn, Score, Trajectory, Rollout, Group.

Messages and tool calls have the shape that every chat endpoint understands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from wanderlust.declared_tools import DeclaredTool as DeclaredTool  # noqa: PLC0414
from wanderlust.declared_tools import Tool as Tool  # noqa: PLC0414  # most import it from here
from wanderlust.errors import FailureDetails

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by the model.

    Example:
        >>> ToolCall(id="call-1", name="search", arguments='{"query": "Rome"}').name
        'search'
    """

    id: str
    name: str
    arguments: str
    """Raw JSON exactly as the model wrote it; parsing it is the business of whoever runs the tool."""
    extra: str | None = None
    """JSON object of further fields that the endpoint wants back with this call (`extra_content`)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One utterance in a conversation.

    Example:
        >>> Message("user", "What is 2 + 2?").content
        'What is 2 + 2?'
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    """Reasoning that the endpoint returned apart from the content; None when there is none."""
    extra: str | None = None
    """JSON object of further fields that the endpoint wants back with this message (`reasoning_details`)."""
    images: tuple[str, ...] = ()
    """URLs of the images in the message, `https:` or `data:`; `content` has an IMAGE_MARK where each of them stands."""


IMAGE_MARK = "\ufffc"
"""Stands for an image in a message's content: Unicode's object replacement character."""


def system(text: str) -> Message:
    """A system message."""
    return Message("system", text)


def user(text: str) -> Message:
    """A user message."""
    return Message("user", text)


def assistant(text: str, *tool_calls: ToolCall) -> Message:
    """An assistant message."""
    return Message("assistant", text, tool_calls)


def tool_message(text: str, call: ToolCall) -> Message:
    """The result of `call`, for the model to read."""
    return Message("tool", text, tool_call_id=call.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem, immutable. What varies between rollouts is the seed, never the task.

    Example:
        >>> Task(id="sum-1", prompt=(user("What is 2 + 2?"),), answer="4", info={"level": 1}).answer
        '4'
    """

    id: str
    prompt: tuple[Message, ...] = ()
    answer: Any = None
    """Ground truth for the rubric; never shown to the policy."""
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What was really sampled in one turn; never re-tokenized.

    The seat's whole sequence after this turn is its first `offset` ids, then `prompt`, then `completion`.

    Example:
        >>> tokens = Tokens(prompt=(5, 8, 2), completion=(9, 4), logprobs=(-0.1, -1.6), offset=12, version=3)
        >>> len(tokens.completion) == len(tokens.logprobs)
        True
    """

    prompt: tuple[int, ...]
    """Ids of the new part of the context only."""
    completion: tuple[int, ...]
    """Sampled ids, the end-of-turn id included when it was sampled."""
    logprobs: tuple[float, ...]
    """Natural log-probability of each completion id under the distribution at the sampling temperature."""
    offset: int = 0
    """How many ids of the context came before `prompt`; 0 starts a new sequence."""
    version: int = 0
    """The policy's version when it sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log-probability of a sampled token, as text."""

    text: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens in its place, where they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDetails:
    """What was asked to be told about an answer, beside the answer itself."""

    stop: str = ""
    """The text of `AnswerOptions.stop` that ended the answer; empty where none did, or nobody knows."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of each sampled token, where they were asked for."""
    cut: bool = False
    """Whether an answer whose finish is `not_sampled` ended at its limit of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a policy returns.

    Example:
        >>> Completion(message=assistant("4"), usage={"prompt_tokens": 12, "completion_tokens": 2}).finish
        'stop'
    """

    message: Message
    finish: str = "stop"
    """`stop`, `length` or `tool_calls`, as chat endpoints name them; `refusal` where the API says that the model
    declined. A refusal is an answer like any other, and is scored."""
    tokens: Tokens | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    details: AnswerDetails | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One observation (the new messages only) and one action.

    Example:
        >>> Turn(observation=(user("What is 2 + 2?"),), action=assistant("4")).action.content
        '4'
    """

    observation: tuple[Message, ...]
    action: Message
    resets_context: bool = False
    """True when `observation` is a context of its own (compaction, a sub-agent) and continues no turn."""
    parent: int | None = None
    """Index of the turn that this one continues, where that is not the turn before it."""
    tools: tuple[DeclaredTool, ...] = ()
    """What the policy was offered to call."""
    finish: str = "stop"
    tokens: Tokens | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    """What the policy said the turn took: `prompt_tokens` and, of these, `cached_tokens`; `completion_tokens` and, of
    these, `reasoning_tokens`. Empty when it did not say."""
    details: AnswerDetails | None = None
    """What the request for this turn asked to be told about its answer (`AnswerOptions`)."""


class Status(StrEnum):
    """How an episode ended."""

    DONE = "done"
    TRUNCATED = "truncated"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a trajectory is worth.

    Example:
        >>> Score(reward=0.8, parts={"exact": 1.0, "short": 0.0}, metrics={"words": 40.0}).reward
        0.8
    """

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Raw value per reward function, before weighting."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Recorded, never trained on."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What was said in judgement (a judge's answer), by reward function; for readers."""


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """One seat's turns in one rollout.

    Example:
        >>> turn = Turn(observation=(user("What is 2 + 2?"),), action=assistant("4"))
        >>> [message.role for message in Trajectory(turns=[turn], score=Score(reward=1.0)).messages]
        ['user', 'assistant']
    """

    seat: str = "agent"
    turns: list[Turn] = field(default_factory=list)
    score: Score | None = None
    """None while unscored, and for ever when the rollout failed."""
    advantage: float | None = None
    """What the whole trajectory was worth compared with its siblings."""
    advantages: list[list[float]] | None = None
    """Finer credit: per turn, one value per sampled token; None gives every token `advantage`."""
    rewards: list[float] = field(default_factory=list)
    """What the environment paid after each turn; turns at the end that it has not come to are 0."""
    sft_weight: float = 0.0
    """How much each sampled token counts as an example to follow, beside its advantage."""
    reference_logprobs: list[list[float]] | None = None
    """Per turn, another model's log-probability of each sampled token; only while credit is given, never stored."""
    trainable: bool = True

    @property
    def messages(self) -> list[Message]:
        """The conversation as it stands after the last turn."""
        return self.conversation(len(self.turns) - 1)

    def parent(self, turn: int) -> int | None:
        """Index of the turn that this one continues; None where it begins a conversation."""
        if turn == 0 or self.turns[turn].resets_context:
            return None
        own = self.turns[turn].parent
        return turn - 1 if own is None else own

    def path(self, turn: int) -> list[int]:
        """Indices of the turns of one conversation, from its first to this one."""
        path, at = list[int](), turn if turn >= 0 else None
        while at is not None:
            path.append(at)
            at = self.parent(at)
        return path[::-1]

    def conversation(self, turn: int) -> list[Message]:
        """The conversation as it stands after a turn."""
        turns = [self.turns[at] for at in self.path(turn)]
        return [message for turn in turns for message in (*turn.observation, turn.action)]

    @property
    def is_one_conversation(self) -> bool:
        """Whether every turn continues the one before it."""
        return not any(turn.resets_context or turn.parent is not None for turn in self.turns)

    @property
    def ends(self) -> list[int]:
        """Indices of the turns that no other continues: the last one of each conversation."""
        continued = {self.parent(turn) for turn in range(len(self.turns))}
        return [turn for turn in range(len(self.turns)) if turn not in continued]


@dataclass(slots=True, kw_only=True)
class Rollout:
    """The record of one episode: one environment, one task, one seed, one or more seats.

    Example:
        >>> rollout = Rollout(task=Task(id="sum-1"), seed=7, trajectories=[Trajectory(score=Score(reward=1.0))])
        >>> rollout.trajectory.score.reward
        1.0
    """

    task: Task
    seed: int
    """Keys the environment's draws; siblings share it."""
    sample_index: int = 0
    """Keys the policy's draws; what tells siblings of one group apart."""
    trajectories: list[Trajectory] = field(default_factory=list)
    status: Status = Status.DONE
    stop_reason: str = "done"
    """Why it ended: `done`, a limit's name, or the class name of the failure."""
    error: str | None = None
    failure: FailureDetails | None = None
    """Where it failed; None where it did not, and in runs of before."""
    transient: bool = False
    """True when the failure may pass by itself, so that trying again makes sense."""
    refusal: str = ""
    """`HTTP 401` and the like where a server refused the request itself; empty elsewhere."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Whatever the environment left for the rubric and the viewer (final board, world log); plain data."""
    seconds: float = 0.0
    """Wall-clock seconds the episode took; for reports, never for logic."""
    provenance: str = ""
    """Digest of the code, rubric, tasks and settings that made it, as in the run's `wander.lock`; set when stored."""

    @property
    def trajectory(self) -> Trajectory:
        """The only seat's trajectory; ValueError when there are several."""
        (only,) = self.trajectories
        return only

    @property
    def main_trajectory(self) -> Trajectory | None:
        """The scored trajectory that figures of one seat are of: the first that learns, or the first where none does.

        None where nothing was scored.
        """
        learning = [t for t in self.trajectories if t.trainable] or self.trajectories
        return next((t for t in learning if t.score is not None), None)


@dataclass(slots=True, kw_only=True)
class Group:
    """Sibling rollouts of one task and seed: the unit that advantages are computed over.

    Example:
        >>> task = Task(id="sum-1")
        >>> scores = [Score(reward=1.0), Score(reward=0.0), None]  # the last rollout failed
        >>> rollouts = [Rollout(task=task, seed=7, trajectories=[Trajectory(score=score)]) for score in scores]
        >>> Group(task=task, rollouts=rollouts).rewards
        [1.0, 0.0]
    """

    task: Task
    rollouts: list[Rollout]
    index: int = 0
    """Position of the task in the stream it was pulled from."""

    @property
    def rewards(self) -> list[float]:
        """The reward of each scored rollout: the mean over its seats that learn, or over all where none does."""
        return [sum(rewards) / len(rewards) for r in self.rollouts if (rewards := [*_learning_rewards(r).values()])]

    @property
    def seat_rewards(self) -> dict[str, list[float]]:
        """The rewards of each seat that learns, of all seats where none does; failed rollouts are left out."""
        seats: dict[str, list[float]] = {}
        for rollout in self.rollouts:
            for seat, reward in _learning_rewards(rollout).items():
                seats.setdefault(seat, []).append(reward)
        return seats


def _learning_rewards(rollout: Rollout) -> dict[str, float]:
    learning = [t for t in rollout.trajectories if t.trainable] or rollout.trajectories
    return {t.seat: t.score.reward for t in learning if t.score is not None}


def decode_arguments(text: str) -> Any:
    """Parse a call's arguments; the text itself where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Policy(Protocol):
    """Anything that answers a conversation: an endpoint, a local model, a script, a person.

    Example:
        >>> class Echo:
        ...     async def complete(self, messages, tools=(), *, key=""):
        ...         return Completion(message=assistant(messages[-1].content))
    """

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer the conversation.

        `key` names the seat of one episode: a policy that draws at random draws the same for the same key
        and the same turn, and may keep its cache of the conversation under it.
        """
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """A policy that keeps something per conversation (a cache row) and wants to be told of its end."""

    def release(self, key: str) -> None:
        """Forget everything kept under `key`; unknown keys are fine."""
        ...


OnText = Callable[[str], None]
"""Receives each further piece of an answer's text, as soon as no later token can change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What a request asks of one answer's form; how it is drawn (`temperature` and the like) is the policy's.

    Example:
        >>> AnswerOptions(stop=("Observation:",), max_tokens=64).changed
        ['stop', 'max_tokens']
    """

    response_format: Mapping[str, Any] | None = None
    """As chat endpoints take it: `json_object`, or `json_schema` with a schema."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer. The sampled tokens include the one that did; the message's content ends before it."""
    max_tokens: int | None = None
    """Bound of the answer; a policy's own smaller bound stays."""
    tool_choice: Literal["auto", "required"] = "auto"
    """`required`: the answer must call a tool. A request that forbids calls hands over no tools."""
    tool_name: str = ""
    """With `required`, the one tool that must be called; empty leaves the choice."""
    parallel_tool_calls: bool = True
    """False: at most one call in the answer."""
    logprobs: bool = False
    """Whether `AnswerDetails.logprobs` is wanted."""
    top_logprobs: int = 0
    """Alternatives wanted for each token."""

    @property
    def changed(self) -> list[str]:
        """Names of the options that ask for something."""
        return [name for name in self.__slots__ if getattr(self, name) != getattr(_NO_OPTIONS, name)]


_NO_OPTIONS = AnswerOptions()


@runtime_checkable
class SupportsOptions(Protocol):
    """A policy that honours options of a request."""

    def unsupported_option(self, options: AnswerOptions) -> str:
        """Name of the first field of `options` that cannot be honoured; empty where all can."""
        ...

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """Like `Policy.complete`, and each option is honoured. `on_text` is as in SupportsStreaming, and may be left
        uncalled. PolicyFailure for an `unsupported_option`."""
        ...


@runtime_checkable
class SupportsStreaming(Protocol):
    """A policy that says what it writes while it writes it."""

    async def complete_streaming(
        self, on_text: OnText, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = ""
    ) -> Completion:
        """Like `Policy.complete`, with the same draws; the pieces are a beginning of the message's content."""
        ...


class RubricLike(Protocol):
    """Judges one seat's trajectory of a finished rollout."""

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score: ...


@runtime_checkable
class GroupRubric(RubricLike, Protocol):
    """A rubric that also looks at siblings together, after it scored each of them."""

    @property
    def compares(self) -> bool:
        """Whether it wants to: then siblings are handed on only when all have been played and compared."""
        ...

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The seat's final scores, one per rollout of `group`, in its order.

        `group` holds the siblings that were played and scored; those that failed are left out.
        """
        ...
