"""Render a model's answers in OpenAI's API, whole and in chunks, with the sampled ids and log-probabilities.

Ids are written in vLLM's fields `prompt_token_ids` and `token_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wanderlust.openai_types import call_to_wire
from wanderlust.policies.base import SampledTokens
from wanderlust.serving.chat_api import render_choice, render_logprob
from wanderlust.serving.dialect import JsonObject
from wanderlust.serving.model_requests import RequestOptions
from wanderlust.types import Message, TokenLogprob, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer."""

    index: int
    prompt: tuple[int, ...]
    sampled: SampledTokens
    message: Message

    @property
    def finish(self) -> str:
        """The API's name of the answer's end."""
        return "tool_calls" if self.message.tool_calls and self.sampled.finish == "stop" else self.sampled.finish


def count_usage(choices: Sequence[Choice]) -> dict[str, int]:
    """Count the tokens read, each prompt once, and written."""
    prompts = {choice.prompt for choice in choices}
    read, written = sum(map(len, prompts)), sum(len(choice.sampled.ids) for choice in choices)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """Render the answer to one request, a chat completion or a completion."""

    id: str
    model: str
    options: RequestOptions
    decode: Callable[[Sequence[int]], str]
    chat: bool

    def whole(self, choices: Sequence[Choice]) -> JsonObject:
        """Render the whole answer."""
        body = self._body("chat.completion") | {
            "choices": [self._choice(choice) for choice in choices],
            "usage": count_usage(choices),
        }
        if self.chat and self.options.return_token_ids:
            body["prompt_token_ids"] = list(choices[0].prompt)
        return body

    def opening(self, index: int, prompt: Sequence[int]) -> JsonObject:
        """Render a choice's first chunk."""
        prompt_fields = {"prompt_token_ids": list(prompt)} if self.options.return_token_ids else {}
        if self.chat:
            return self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}}) | prompt_fields
        return self._chunk({"index": index, "text": "", **prompt_fields})

    def piece(self, index: int, text: str, sampled: tuple[Sequence[int], Sequence[float]]) -> JsonObject:
        """Render a chunk of text with the tokens that were sampled since the chunk before."""
        fields: JsonObject = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk({"index": index, **fields, **self._exact(*sampled)})

    def closing(self, choice: Choice) -> Iterator[JsonObject]:
        """Yield the chunks after a choice's text: its calls, and its finish."""
        for number, call in enumerate(choice.message.tool_calls):
            delta = {"tool_calls": [{"index": number, **call_to_wire(call)}]}
            yield self._chunk({"index": choice.index, "delta": delta})
        fields: JsonObject = {"delta": {}} if self.chat else {"text": ""}
        yield self._chunk({"index": choice.index, **fields}, choice.finish)

    def ending(self, choices: Sequence[Choice]) -> JsonObject:
        """Render the usage in a chunk of its own."""
        return self._body("chat.completion.chunk") | {"choices": [], "usage": count_usage(choices)}

    def _body(self, chat_kind: str) -> JsonObject:
        kind = chat_kind if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": 0, "model": self.model}

    def _chunk(self, choice: JsonObject, finish: str | None = None) -> JsonObject:
        return self._body("chat.completion.chunk") | {"choices": [{**choice, "finish_reason": finish}]}

    def _choice(self, choice: Choice) -> JsonObject:
        sampled = choice.sampled
        exact = self._exact(sampled.ids, sampled.logprobs)
        if self.chat:
            turn = Turn(observation=(), action=choice.message, finish=choice.finish)
            return {**render_choice(turn, choice.index), **exact}
        prompt_fields = {"prompt_token_ids": list(choice.prompt)} if self.options.return_token_ids else {}
        fields = {"text": choice.message.content, "finish_reason": choice.finish}
        return {"index": choice.index, **fields, **exact, **prompt_fields}

    def _exact(self, ids: Sequence[int], logprobs: Sequence[float]) -> JsonObject:
        """Ids and log-probabilities, where the request asks for them."""
        exact: JsonObject = {"logprobs": None}
        if self.options.logprobs:
            pairs = [(self.decode([token]), logprob) for token, logprob in zip(ids, logprobs, strict=True)]
            if self.chat:
                content = [render_logprob(TokenLogprob(text=token, logprob=logprob)) for token, logprob in pairs]
                exact["logprobs"] = {"content": content, "refusal": None}
            else:
                offsets = [0, *accumulate(len(token) for token, _ in pairs)]
                exact["logprobs"] = {
                    "tokens": [token for token, _ in pairs],
                    "token_logprobs": list(logprobs),
                    "top_logprobs": [{token: logprob} for token, logprob in pairs],
                    "text_offset": offsets[:-1],
                }
        if self.options.return_token_ids:
            exact["token_ids"] = list(ids)
        return exact
