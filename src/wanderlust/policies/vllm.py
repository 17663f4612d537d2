"""A sampler over HTTP, token prompts in and sampled tokens out: vLLM's server, and `wander serve`, which has its API.

Source: vLLM 0.32: `POST /v1/completions` with a prompt of ids, `logprobs` and `return_token_ids`; with `--enable-lora`
and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment `POST /v1/load_lora_adapter` and `unload_lora_adapter`; in
its development mode (VLLM_SERVER_DEV_MODE=1) `POST /pause`, `/collective_rpc`, `/reset_prefix_cache` and `/resume`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from wanderlust.errors import PolicyFailure, UsageError, one_line
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.endpoint import HttpConnection, parse_endpoint_url
from wanderlust.policies.refusals import Refusal

HEALTH_SECONDS = 5.0
"""Patience with a server that is asked whether it is well."""
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


class _PromptLogprob(msgspec.Struct):
    logprob: float


class _PromptChoice(msgspec.Struct):
    prompt_logprobs: list[dict[str, _PromptLogprob] | None]


class _PromptAnswer(msgspec.Struct):
    choices: list[_PromptChoice]


_prompt_answers = msgspec.json.Decoder(_PromptAnswer)


class VLLM(HttpConnection):
    """Sample over HTTP with exact log-probabilities; equal keys draw equally where the server can.

    vLLM's log-probabilities are those at temperature 1 before any cut, unless it was started with
    `--logprobs-mode processed_logprobs` (pass `processed`), when they are those after both. Sampling options for
    which they are not what a trainer recomputes are a UsageError. A server that goes away is a PolicyFailure of one
    line, after as many attempts as an `Endpoint` makes; `async with` holds its connections open.
    """

    kind = "vLLM"
    """The server's name in messages."""
    takes_schema = True

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
        self._loads = 0
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
            return self._read(answer, prompt, version)

        def adapt(refusal: Refusal) -> bytes | None:  # what remains of the context is sampled, as a local engine does
            fits = refusal.context_full and 0 < refusal.room < sampling.max_tokens
            return self._body(prompt, replace(sampling, max_tokens=refusal.room), key=key) if fits else None

        return await self.ask(self._sampling_url, body, draw=f"{key}", read=read, adapt=adapt)

    @property
    def label(self) -> str:
        """The model, and where it is."""
        return f"{self.base} at {self.url.with_user(None).with_query(None)}"

    @property
    def root(self) -> URL:
        """The server's address without `/v1`."""
        return self.url.parent.parent

    @property
    def _sampling_url(self) -> URL:
        return self.url

    def _read(self, answer: bytes, prompt: Sequence[int], version: int) -> SampledTokens:
        """The answer to `prompt` by the weights of `version`. PolicyFailure where it is not exact."""
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

    def release(self, session: str) -> None:
        """Nothing is kept per conversation."""

    async def publish(self, folder: Path, *, version: int | None = None) -> int:
        """Load the adapter in `folder` for all later samples; returns its version, by default the next one.

        Answers under way end under the adapter before, which stays loaded until the next one is published: the server
        needs room for two (`--max-loras 2`), and the folder must exist for both, on the server's machine. What is
        loaded has a name of its own: vLLM's prefix cache goes by the name (vLLM issues 42125, 30931).
        """
        newest = self.version + 1 if version is None else version
        self._loads += 1
        name = f"{self._name}-{self._loads}"
        await self._adapter("load", {"lora_name": name, "lora_path": server_path(folder)})
        self.model, self.version = name, newest
        self._loaded.append(name)
        while len(self._loaded) > 2:
            await self._adapter("unload", {"lora_name": self._loaded.pop(0)})
        return self.version

    async def load_weights(self, folder: Path, *, version: int | None = None) -> int:
        """Have the server read all weights from the checkpoint in `folder`; returns their version, by default the next.

        The server must have been started with VLLM_SERVER_DEV_MODE=1, and the folder must exist on its machine. Answers
        under way are held meanwhile and go on under the new weights: their version is the one they began under.
        Prefixes that were cached under the old weights are forgotten.
        """
        reload = {"method": "reload_weights", "kwargs": {"weights_path": server_path(folder)}}
        async with self.replaced_weights(version):
            await self._control("collective_rpc", reload)
        return self.version

    @asynccontextmanager
    async def replaced_weights(self, version: int | None = None) -> AsyncIterator[None]:
        """Inside, whoever gives the server other weights may do so; their version is by default the next.

        Answers under way are held. Without an error the server forgets the prefixes that it cached.
        """
        newest = self.version + 1 if version is None else version
        await self._control("pause?mode=keep")
        try:
            yield
            await self._control("reset_prefix_cache")
            self.version = newest
        finally:
            await self._control("resume")

    async def call_workers(self, method: str, **arguments: Any) -> list[Any]:
        """Call a method on all workers of the server, once; returns their answers. PolicyFailure where it fails."""
        body = msgspec.json.encode({"method": method, "kwargs": arguments})
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, headers=self._headers) as session,
                session.post(self.root / "collective_rpc", data=body) as answer,
            ):
                text = await answer.text()
                if answer.status != 200:
                    raise PolicyFailure(
                        f"{self.root}: {method}: HTTP {answer.status}: {one_line(text)}", transient=True
                    )
                return list(msgspec.json.decode(text).get("results", ())) if text else []
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError, AttributeError) as error:
            why = one_line(str(error)) or type(error).__name__
            raise PolicyFailure(f"{self.root}: {method}: {why}", transient=True) from error

    async def is_healthy(self) -> bool:
        """Whether the server lists its models, within HEALTH_SECONDS."""
        try:
            return bool(await self.first_model())
        except PolicyFailure:
            return False

    async def first_model(self) -> str:
        """Name of the first model that the server lists. PolicyFailure where it does not answer."""
        address = self.url.parent / "models"
        try:
            _, body = await self._look_at(address)
            return str(msgspec.json.decode(body)["data"][0]["id"])
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError, LookupError, TypeError) as error:
            why = one_line(str(error)) or type(error).__name__
            raise PolicyFailure(f"no {self.kind} server answers at {address}: {why}") from error

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids that the server reads a prompt as. PolicyFailure for a server that does not tell."""
        body = {"model": self.model, "prompt": text, "max_tokens": 1, "logprobs": 1, "return_token_ids": True}

        def read(answer: bytes) -> tuple[int, ...]:
            try:
                return tuple(_answers.decode(answer).choices[0].prompt_token_ids)
            except (msgspec.MsgspecError, IndexError) as error:
                raise PolicyFailure(
                    f"the server at {self.url.parent} tells no token ids: it must know `return_token_ids`, as vLLM "
                    "does from version 0.10.2 on"
                ) from error

        return await self.ask(self.url, msgspec.json.encode(body), draw=text, read=read)

    async def score(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """As `ScoringSampler` says, by the log-probabilities of prompts; a request for each continuation."""
        return await asyncio.gather(*(self._score(tuple(prompt), tuple(one)) for one in continuations))

    async def _score(self, prompt: tuple[int, ...], continuation: tuple[int, ...]) -> float:
        ids = [*prompt, *continuation]
        body = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}

        def read(answer: bytes) -> float:
            try:
                told = _prompt_answers.decode(answer).choices[0].prompt_logprobs
                rows = zip(ids[len(prompt) :], told[len(prompt) : len(ids)], strict=True)
                return fsum(row[str(token)].logprob for token, row in rows if row is not None)
            except (msgspec.MsgspecError, IndexError, KeyError, ValueError) as error:
                raise PolicyFailure(f"the server at {self.url.parent} tells no log-probabilities of prompts") from error

        return await self.ask(self.url, msgspec.json.encode(body), draw=f"{ids}", read=read)

    async def check_calls(self, kind: str) -> None:
        """PolicyFailure where the server lists its calls and lacks those that publish an adapter or a checkpoint.

        Servers that do not list them, as `wander serve`, are let through.
        """
        needed = {
            "adapter": (
                "/v1/load_lora_adapter",
                "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
            ),
            "checkpoint": ("/collective_rpc", "start it with VLLM_SERVER_DEV_MODE=1, or train adapters (lora)"),
        }
        path, remedy = needed[kind]
        listed = (await self._get("openapi.json")).get("paths")
        if isinstance(listed, Mapping) and listed and path not in listed:
            raise PolicyFailure(f"the server at {self.url.parent} has no call {path} to publish weights by: {remedy}")

    async def library_version(self) -> str:
        """Version of the server's library; empty where it does not tell."""
        told = (await self._get("version")).get("version")
        return told if isinstance(told, str) else ""

    async def _get(self, path: str) -> Mapping[str, Any]:
        """The object that the server answers beside its completions; empty where it answers something else."""
        try:
            status, body = await self._look_at(self.root / path)
            return msgspec.json.decode(body, type=dict[str, Any]) if status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
            return {}

    async def _look_at(self, url: URL) -> tuple[int, bytes]:
        """Status and body of an answer that comes within HEALTH_SECONDS."""
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
            session.get(url) as answer,
        ):
            return answer.status, await answer.read()

    def forget_adapters(self) -> None:
        """The server was started anew: what was loaded is gone."""
        self._loaded.clear()
        self.model = self.base

    async def close(self) -> None:
        """Unload the adapters; the server's own model answers again."""
        self.model = self.base
        while self._loaded:
            await self._adapter("unload", {"lora_name": self._loaded.pop()})

    async def _adapter(self, verb: str, body: Mapping[str, str]) -> None:
        url = self.url.parent / f"{verb}_lora_adapter"
        await self.ask(url, msgspec.json.encode(body), draw=body["lora_name"], read=bytes)

    async def _control(self, call: str, body: Mapping[str, Any] | None = None) -> None:
        """One of the calls beside `/v1`, for servers in development mode."""
        url = self.root.joinpath(call.partition("?")[0]).with_query(call.partition("?")[2])
        await self.ask(url, msgspec.json.encode(body or {}), draw=call, read=bytes)

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
        if sampling.schema:
            form = {"name": "answer", "schema": msgspec.json.decode(sampling.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if self._ends:
            body["stop_token_ids"] = self._ends
        return msgspec.json.encode(body)


def server_path(folder: Path) -> str:
    """Where the server finds the folder."""
    return str(folder.absolute())
