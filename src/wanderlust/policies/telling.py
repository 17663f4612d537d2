"""Answers as OpenAI's API writes them, whole and in chunks, with the ids and log-probabilities that were sampled.

Where vLLM has fields of its own for those we write the same: `prompt_token_ids` and `token_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wanderlust.core.messages import Message
from wanderlust.core.types import Turn
from wanderlust.policies.asked import Order
from wanderlust.policies.chat import chat_answer
from wanderlust.policies.sampling import Sampled
from wanderlust.policies.wire import call_to_wire

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer."""

    index: int
    prompt: tuple[int, ...]
    sampled: Sampled
    message: Message

    @property
    def finish(self) -> str:
        """As the API names it."""
        return "tool_calls" if self.message.tool_calls and self.sampled.finish == "stop" else self.sampled.finish


def usage(choices: Sequence[Choice]) -> dict[str, int]:
    """Tokens read, each prompt once, and written."""
    prompts = {choice.prompt for choice in choices}
    read, written = sum(map(len, prompts)), sum(len(choice.sampled.ids) for choice in choices)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one request is answered; the two kinds differ in what a choice looks like."""

    id: str
    model: str
    order: Order
    decode: Callable[[Sequence[int]], str]
    chat: bool

    def whole(self, choices: Sequence[Choice]) -> Json:
        """The answer at once."""
        kind = "chat.completion" if self.chat else "text_completion"
        body = self._body(kind) | {"choices": [self._choice(choice) for choice in choices], "usage": usage(choices)}
        if self.chat and self.order.ids:
            body["prompt_token_ids"] = list(choices[0].prompt)
        return body

    def opening(self, index: int, prompt: Sequence[int]) -> Json:
        """A choice's first chunk."""
        shown = {"prompt_token_ids": list(prompt)} if self.order.ids else {}
        if self.chat:
            return self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}}) | shown
        return self._chunk({"index": index, "text": "", **shown})

    def piece(self, index: int, text: str, sampled: tuple[Sequence[int], Sequence[float]]) -> Json:
        """A chunk of text, and the tokens that were sampled since the chunk before."""
        said: Json = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk({"index": index, **said, **self._exact(*sampled)})

    def closing(self, choice: Choice) -> Iterator[Json]:
        """What follows a choice's text: its calls, and how it ended."""
        for number, call in enumerate(choice.message.tool_calls):
            delta = {"tool_calls": [{"index": number, **call_to_wire(call)}]}
            yield self._chunk({"index": choice.index, "delta": delta})
        said: Json = {"delta": {}} if self.chat else {"text": ""}
        yield self._chunk({"index": choice.index, **said}, choice.finish)

    def ending(self, choices: Sequence[Choice]) -> Json:
        """The usage, in a chunk of its own."""
        return self._body(self._kind()) | {"choices": [], "usage": usage(choices)}

    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _body(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": 0, "model": self.model}

    def _chunk(self, choice: Json, finish: str | None = None) -> Json:
        return self._body(self._kind()) | {"choices": [{**choice, "finish_reason": finish}]}

    def _choice(self, choice: Choice) -> Json:
        sampled = choice.sampled
        exact = self._exact(sampled.ids, sampled.logprobs)
        if self.chat:
            turn = Turn(observation=(), action=choice.message, finish=choice.finish)
            (said,) = chat_answer(turn, id=self.id, model=self.model)["choices"]
            return {**said, "index": choice.index, **exact}
        shown = {"prompt_token_ids": list(choice.prompt)} if self.order.ids else {}
        said = {"text": choice.message.content, "finish_reason": choice.finish}
        return {"index": choice.index, **said, **exact, **shown}

    def _exact(self, ids: Sequence[int], logprobs: Sequence[float]) -> Json:
        """Ids and log-probabilities, as far as they were asked for."""
        exact: Json = {"logprobs": None}
        if self.order.logprobs:
            tokens = [self.decode([token]) for token in ids]
            exact["logprobs"] = _chat_logprobs(tokens, logprobs) if self.chat else _text_logprobs(tokens, logprobs)
        if self.order.ids:
            exact["token_ids"] = list(ids)
        return exact


def _chat_logprobs(tokens: Sequence[str], logprobs: Sequence[float]) -> Json:
    return {
        "content": [
            {"token": token, "logprob": logprob, "bytes": list(token.encode(errors="replace")), "top_logprobs": []}
            for token, logprob in zip(tokens, logprobs, strict=True)
        ],
        "refusal": None,
    }


def _text_logprobs(tokens: Sequence[str], logprobs: Sequence[float]) -> Json:
    offsets, at = [], 0
    for token in tokens:
        offsets.append(at)
        at += len(token)
    top = [{token: logprob} for token, logprob in zip(tokens, logprobs, strict=True)]
    return {"tokens": list(tokens), "token_logprobs": list(logprobs), "top_logprobs": top, "text_offset": offsets}
