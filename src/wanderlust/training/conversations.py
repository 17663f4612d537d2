"""Rows of conversations and preferences, from a file, a run or anywhere else, as samples to train on.

A row has `messages` (what `wander export --to sft` writes), or `prompt` and `completion`, or, to prefer one answer to
another, `chosen` and `rejected` with or without `prompt` (`wander export --to dpo`). Each is a list of messages in
OpenAI's form, or a text: that of one user message, or of one answer. `tools` may list the tools that the model was
offered. Other columns are not read, but for `task`, which keeps held-out rows apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.openai_types import message_from_wire, tool_from_wire
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.reward_model import scored_ids
from wanderlust.store.formats import training_rows
from wanderlust.store.run_folder import FRESH_POLICY, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.datasets import Row, numbered_rows
from wanderlust.training.batch.samples import Sample, imitation_samples
from wanderlust.training.finetune_config import FinetuneConfig, Method
from wanderlust.types import DeclaredTool, Message, Trajectory, Turn, assistant, user

DATA_SUFFIXES = (".jsonl", ".csv", ".parquet")
COLUMNS = {"sft": "messages, or prompt and completion", "dpo": "chosen and rejected, with or without prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages, of which those from number `first` on may be trained on."""

    where: str
    """File and line, for errors."""
    messages: tuple[Message, ...]
    tools: tuple[DeclaredTool, ...] = ()
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRow:
    """One conversation, or two of which the first is preferred."""

    conversations: tuple[Conversation, ...]
    key: str
    """Rows of one key are about the same task."""


def data_rows(
    source: str | Path | Iterable[Row], *, min_reward: float | None = None, stage: str = "", method: Method = "sft"
) -> Iterator[tuple[str, Row]]:
    """The rows of a file, of a run's stored rollouts, or of `source` itself, each with what names it in an error.

    The filters are those of `wander export`, and for runs only. Raises UsageError.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or path.suffix in DATA_SUFFIXES:
        if min_reward is not None or stage:
            raise UsageError("min_reward and stage choose among a run's rollouts; this is no run: leave them out")
        yield from numbered_rows(source)
        return
    if not path.exists():
        raise UsageError(f"there is no file or run {path}")
    with RunStore.read(find_evaluation(path)[0]) as reader:
        to: Literal["sft", "dpo"] = "dpo" if method == "dpo" else "sft"
        for number, row in enumerate(training_rows(reader, to, min_reward=min_reward, stage=stage), 1):
            yield f"{path}, {'conversation' if to == 'sft' else 'pair'} {number}", row


def rows_digest(rows: Iterable[tuple[str, Row]]) -> str:
    """SHA-256 of the rows' content, in order."""
    digest = sha256()
    for _, row in rows:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode(errors="backslashreplace") + b"\n")
    return digest.hexdigest()


def parse_row(where: str, row: Row, method: Method) -> DataRow:
    """The conversations of a row. Raises UsageError, which names file and line."""
    try:
        return _parsed(where, row, method)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _parsed(where: str, row: Row, method: Method) -> DataRow:
    tools = _tools(row.get("tools"))
    if method == "dpo":
        if "chosen" not in row or "rejected" not in row:
            raise _missing(row, method)
        prompt = _messages(row["prompt"], "prompt", user) if "prompt" in row else ()
        chosen, rejected = (_messages(row[name], name, assistant) for name in ("chosen", "rejected"))
        if "prompt" not in row:  # whole conversations: what they share is the prompt
            same = next((n for n, pair in enumerate(zip(chosen, rejected, strict=False)) if pair[0] != pair[1]), None)
            if same is None:
                raise UsageError("chosen and rejected do not differ in any message that both have")
            prompt, chosen, rejected = chosen[:same], chosen[same:], rejected[same:]
        if chosen == rejected:
            raise UsageError("chosen and rejected are the same")
        answers: tuple[tuple[Message, ...], ...] = (chosen, rejected)
    elif "messages" in row:
        prompt, answers = (), (_messages(row["messages"], "messages", user),)
    elif "prompt" in row and "completion" in row:
        prompt = _messages(row["prompt"], "prompt", user)
        answers = (_messages(row["completion"], "completion", assistant),)
    else:
        raise _missing(row, method)
    conversations = tuple(
        Conversation(where=where, messages=(*prompt, *answer), tools=tools, first=len(prompt)) for answer in answers
    )
    for name, one in zip(("chosen", "rejected") if method == "dpo" else ("this",), conversations, strict=True):
        if not any(message.role == "assistant" for message in one.messages[one.first :]):
            raise UsageError(f"{name} has no answer of the assistant")
    task = row.get("task")
    opening = prompt or [m for m in answers[0] if m.role != "assistant"][:2]
    return DataRow(conversations=conversations, key=str(opening) if task is None else f"task {task}")


def _missing(row: Row, method: Method) -> UsageError:
    there = ", ".join(list(map(str, row))[:12]) or "none"
    return UsageError(f"a row for {method} has {COLUMNS[method]}; this one has: {there}")


def _messages(value: Any, name: str, of_text: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (of_text(value),)
    if not isinstance(value, list | tuple) or not value:
        raise UsageError(f"{name} is a text or a list of messages, not {_kind(value)}")
    return tuple(_message(wire, f"{name}, message {number}") for number, wire in enumerate(value))


def has_reasoning(row: Row) -> bool:
    """Whether a message of the row has reasoning beside its content, which is not trained on."""
    lists = (value for value in row.values() if isinstance(value, list | tuple))
    messages = (message for value in lists for message in value if isinstance(message, Mapping))
    return any(message.get("reasoning_content") or message.get("reasoning") for message in messages)


def _message(wire: Any, what: str) -> Message:
    if not isinstance(wire, Mapping):
        raise UsageError(f"{what} is {_kind(wire)}, not an object with role and content")
    body = {key: wire[key] for key in ("role", "content", "tool_calls", "tool_call_id") if wire.get(key) is not None}
    calls = body.get("tool_calls", ())
    if not isinstance(calls, list | tuple) or not all(isinstance(call, Mapping) for call in calls):
        raise UsageError(f"{what}: tool_calls is a list of objects")
    body["tool_calls"] = [_call(call, number) for number, call in enumerate(calls)]
    try:
        return message_from_wire(body)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from error


def _call(call: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A call as endpoints write it; other makers leave out ids, or have arguments as objects."""
    function = call.get("function", call)
    arguments = function.get("arguments", "{}") if isinstance(function, Mapping) else "{}"
    name = function.get("name") if isinstance(function, Mapping) else function
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call.get("id") or f"call_{number}", "function": {"name": name, "arguments": text}}


def _tools(value: Any) -> tuple[DeclaredTool, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UsageError(f"tools is no JSON ({error})") from error
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        raise UsageError("tools is a list of objects")
    return tuple(tool_from_wire(one if "function" in one else {"function": one}) for one in value)


def _kind(value: Any) -> str:
    return "empty" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def conversation_samples(
    one: Conversation, renderer: Renderer, *, roles: Sequence[str] = ("assistant",)
) -> list[Sample]:
    """The conversation as the model would have met it, by its own template; the mask covers messages of the roles.

    Of an assistant's message, what the model samples is trained on: text, calls, and the end-of-turn token. Ids are cut
    where sampling cuts them. One sample, or one per answer where the template rewrites earlier turns. Raises UsageError
    when the template refuses the conversation.
    """
    try:
        if tuple(roles) == ("assistant",):
            return _answer_samples(one, renderer)
        pieces = _pieces(one, renderer, roles)
    except (PolicyFailure, UsageError) as error:
        raise UsageError(f"{one.where}: {error}") from error
    if pieces is None:
        what = "the chat template rewrites earlier turns: only the role assistant can be trained on"
        raise UsageError(f"{one.where}: {what}")
    return [_sample(pieces, renderer)]


def _answer_samples(one: Conversation, renderer: Renderer) -> list[Sample]:
    """The conversation as if the model had given its answers, of which those from message `first` on are trained."""
    turns: list[Turn] = []
    begun = first = 0
    for number, message in enumerate(one.messages):
        if message.role == "assistant":
            first += number < one.first
            turns.append(Turn(observation=one.messages[begun:number], action=message, tools=one.tools))
            begun = number + 1
    samples = imitation_samples(Trajectory(turns=turns), renderer, first=first)
    for sample in samples:
        sample.off_policy_until = len(sample.ids)
        _cut_untrained(sample)
    return samples


_Pieces: TypeAlias = list[tuple[str, bool]]
"""Texts, one after the other, and whether they are trained on."""


def _pieces(one: Conversation, renderer: Renderer, roles: Sequence[str]) -> _Pieces | None:
    """The whole conversation in pieces; None where the template's text of it does not begin like that of its parts."""
    pieces, done = _Pieces(), ""
    others = [role for role in roles if role != "assistant"]
    for number, message in enumerate(one.messages):
        on = message.role in roles and number >= one.first
        if message.role == "assistant":
            answer = _answer_pieces(one, renderer, number)
            before = "".join(text for text, _ in answer[:-1])
            if not before.startswith(done):
                return None
            pieces += [(before[len(done) :], False), (answer[-1][0], on)]
            done = before + answer[-1][0]
        elif others:
            upto = renderer.text(one.messages[: number + 1], one.tools, asks=False)
            if not upto.startswith(done):
                return None
            pieces.append((upto[len(done) :], on))
            done = upto
    if not renderer.text(one.messages, one.tools, asks=False).startswith(done):
        return None
    return pieces


def _answer_pieces(one: Conversation, renderer: Renderer, number: int) -> _Pieces:
    """The context of an answer, and what the model samples there, up to the token that ends its turn."""
    texts = renderer.answer_text_at(one.messages, number, one.tools)
    if texts is None:
        raise UsageError(f"message {number}: the chat template writes this answer otherwise than the model samples it")
    return [(texts[0], False), (texts[1], True)]


def _sample(pieces: _Pieces, renderer: Renderer) -> Sample:
    """The pieces as ids; neighbours that are both read, or both trained on, are encoded together."""
    sample, text, on = Sample(), "", False
    for piece, trained in [*pieces, ("", None)]:
        if trained == on:
            text += piece
            continue
        ids = renderer.encode(text)
        if on:
            sample.append_completion(ids, [0.0] * len(ids), [1.0] * len(ids))
        else:
            sample.append_context(ids)
        text, on = piece, bool(trained)
    sample.off_policy_until = len(sample.ids)
    _cut_untrained(sample)
    return sample


def _cut_untrained(sample: Sample) -> None:
    """Drop the ids after the last one that is trained on."""
    end = max((place + 1 for place, trained in enumerate(sample.mask) if trained), default=0)
    for values in (sample.ids, sample.mask, sample.logprobs, sample.advantages):
        del values[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A conversation or a pair, ready to be read."""

    samples: list[Sample]
    key: str
    """Its task."""

    @property
    def tokens(self) -> int:
        """Tokens that are read."""
        return sum(len(sample.ids) for sample in self.samples)


@dataclass(slots=True, kw_only=True)
class Examples:
    """What a run trains on, and what it is evaluated on."""

    train: list[Example] = field(default_factory=list)
    held_out: list[Example] = field(default_factory=list)
    too_long: int = 0
    """Rows that were left out."""
    with_reasoning: int = 0
    """Rows with reasoning beside the content of a message."""
    not_preferred: dict[str, int] = field(default_factory=dict)
    """Rows of a reward model that give no preference, by the reason."""


FEW_UPDATES = 100
"""Updates below which a fresh model has hardly learnt to write."""


def data_notes(config: FinetuneConfig, examples: Examples) -> Iterator[str]:
    """What to tell about any data, a line each."""
    if examples.too_long:
        yield f"{examples.too_long} rows are longer than the longest context and are left out"
    if examples.with_reasoning:
        what = f"{examples.with_reasoning} rows have reasoning beside the content, which is not trained on"
        yield f"{what}: write it into the content to train on it"
    tokens = sum(one.tokens for one in examples.train)
    updates = config.epochs * max(-(-tokens // config.batch_tokens), 1)
    if config.policy == FRESH_POLICY and updates < FEW_UPDATES:
        few = f"{tokens} tokens are {updates} updates, and a fresh model needs hundreds: raise --epochs (now "
        yield f"{few}{config.epochs}), or lower --batch-tokens (now {config.batch_tokens})"


def is_held_out(key: str, config: FinetuneConfig) -> bool:
    """Whether the rows of a task are held out: decided by the task and the seed alone."""
    digest = sha256(f"held-out/{config.seed}/{key}".encode(errors="backslashreplace")).digest()
    return int.from_bytes(digest[:8]) < config.eval_share * 2**64


def to_example(row: DataRow, renderer: Renderer, config: FinetuneConfig, *, number: int) -> Example:
    samples: list[Sample] = []
    if config.method == "reward":
        return Example(samples=[*_scored_samples(row, renderer, number)], key=row.key)
    for place, one in enumerate(row.conversations):
        roles = config.trained_roles if config.method == "sft" else ("assistant",)
        own = [sample for sample in conversation_samples(one, renderer, roles=roles) if sample.trained_positions]
        if not own:
            raise UsageError(f"{one.where}: there is nothing of the roles {', '.join(roles)} to train on")
        for sample in own if config.method == "dpo" else ():
            sample.advantages = [(-1.0 if place else 1.0) * on for on in sample.mask]
            sample.episode, sample.first_of_episode = number, not samples and sample is own[0]
        samples += own
    return Example(samples=samples, key=row.key)


def _scored_samples(row: DataRow, renderer: Renderer, number: int) -> Iterator[Sample]:
    """The two conversations of a pair, each with the place where its score is read: after its last token.

    A token that is never read stands there, since a place is named by the token that would follow.
    """
    for sign, one in zip((1.0, -1.0), row.conversations, strict=True):
        try:
            ids = scored_ids(renderer, one.messages, one.tools)
        except (PolicyFailure, UsageError) as error:
            raise UsageError(f"{one.where}: {error}") from error
        sample = Sample(episode=number, first_of_episode=sign > 0)
        sample.append_context(ids)
        sample.append_completion(ids[-1:], [0.0], [sign])
        sample.off_policy_until = len(sample.ids)
        yield sample


def epoch_batches(tokens: Sequence[int], size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Numbers of the examples of each update of an epoch, in an order drawn by seed and epoch: at most `size` tokens,
    or one longer example."""
    order, batches, filled = list(range(len(tokens))), list[list[int]](), size
    Random(f"finetune/{seed}/{epoch}").shuffle(order)
    for n in order:
        if filled + tokens[n] > size:
            batches.append([])
            filled = 0
        batches[-1].append(n)
        filled += tokens[n]
    return batches
