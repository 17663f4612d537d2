"""A sampler over HTTP, token prompts in and sampled tokens out: vLLM's server, and `wander serve`, which has its API.

Source: vLLM 0.26: `POST /v1/completions` with a prompt of ids, `logprobs` and `return_token_ids`; with `--enable-lora`
and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment `POST /v1/load_lora_adapter` and `unload_lora_adapter`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.endpoint import HttpConnection, parse_endpoint_url
from wanderlust.policies.refusals import Refusal

_NEUTRAL_SAMPLING = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent because a server fills omitted options from the model's own generation config."""


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_answers = msgspec.json.Decoder(_Answer)


class VLLM(HttpConnection):
    """Sample over HTTP with exact log-probabilities; equal keys draw equally where the server can.

    vLLM's log-probabilities are those at temperature 1 before any cut, unless it was started with
    `--logprobs-mode processed_logprobs` (pass `processed`), when they are those after both. Sampling options for
    which they are not what a trainer recomputes are a UsageError. A server that goes away is a PolicyFailure of one
    line, after as many attempts as an `Endpoint` makes; `async with` holds its connections open.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        ends: frozenset[int] = frozenset(),
        api_key: str | None = None,
        timeout: float = 300.0,
        concurrency: int = 256,
        processed: bool = False,
    ):
        """`url` ends in `/v1`; `ends` are the ids that end a turn, where the model's own configuration has others."""
        self.url, self.model, self.base = parse_endpoint_url(url, "completions"), model, model
        self.version = 0
        self._ends, self._processed = sorted(ends), processed
        super().__init__(api_key=api_key, timeout=timeout, concurrency=concurrency)
        self._loaded: list[str] = []
        self._name = f"wander-{secrets.token_hex(4)}"  # vLLM may answer from what it remembers under an old name

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer under the weights that were published last. Raises ContextFull where none fits."""
        if self._processed and sampling.top_p < 1:
            raise UsageError("log-probabilities after the top_p cut cannot be trained on: leave top_p at 1")
        if not self._processed and sampling.temperature not in (0, 1):
            raise UsageError(
                f"log-probabilities at temperature {sampling.temperature:g} need a server that was started with"
                " --logprobs-mode processed_logprobs, and processed=True here"
            )
        version, body = self.version, self._body(prompt, sampling, key=key)

        def read(answer: bytes) -> SampledTokens:
            try:
                (choice,) = _answers.decode(answer).choices
            except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
                raise PolicyFailure(f"no token ids with log-probabilities: {error}") from error
            ids, logprobs = tuple(choice.token_ids), tuple(choice.logprobs.token_logprobs)
            if choice.prompt_token_ids != list(prompt):
                raise PolicyFailure("the server read other ids than it was sent")
            if not ids or len(ids) != len(logprobs):
                raise PolicyFailure(f"{len(ids)} token ids with {len(logprobs)} log-probabilities")
            if choice.finish_reason not in ("stop", "length"):
                raise PolicyFailure(f"the answer ended as {choice.finish_reason!r}")
            return SampledTokens(ids=ids, logprobs=logprobs, finish=choice.finish_reason, version=version)

        def adapt(refusal: Refusal) -> bytes | None:  # what remains of the context is sampled, as a local engine does
            fits = refusal.context_full and 0 < refusal.room < sampling.max_tokens
            return self._body(prompt, replace(sampling, max_tokens=refusal.room), key=key) if fits else None

        return await self.ask(self.url, body, draw=f"{key}", read=read, adapt=adapt)

    def release(self, session: str) -> None:
        """Nothing is kept per conversation."""

    async def publish(self, folder: Path) -> int:
        """Load the adapter in `folder` for all later samples; returns its version.

        Answers under way end under the adapter before, which stays loaded until the next one is published: the server
        needs room for two (`--max-loras 2`), and the folder must exist for both, on the server's machine. Each
        version has a name of its own: vLLM's prefix cache goes by the name (vLLM issues 42125, 30931).
        """
        name = f"{self._name}-{self.version + 1}"
        await self._adapter("load", _adapter_at(folder, name))
        self.model, self.version = name, self.version + 1
        self._loaded.append(name)
        while len(self._loaded) > 2:
            await self._adapter("unload", {"lora_name": self._loaded.pop(0)})
        return self.version

    async def close(self) -> None:
        """Unload the adapters; the server's own model answers again."""
        self.model = self.base
        while self._loaded:
            await self._adapter("unload", {"lora_name": self._loaded.pop()})

    async def _adapter(self, verb: str, body: Mapping[str, str]) -> None:
        url = self.url.parent / f"{verb}_lora_adapter"
        await self.ask(url, msgspec.json.encode(body), draw=body["lora_name"], read=bytes)

    def _body(self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": key >> 1,
            "logprobs": 1,
            "return_token_ids": True,
            **_NEUTRAL_SAMPLING,
        }
        if sampling.stop:
            body |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        if self._ends:
            body["stop_token_ids"] = self._ends
        return msgspec.json.encode(body)


def _adapter_at(folder: Path, name: str) -> dict[str, str]:
    return {"lora_name": name, "lora_path": str(folder.resolve())}
