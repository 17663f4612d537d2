"""A sampler over SGLang's own API, token prompts in and sampled tokens out. Written by its documentation; never run
against a real server.

Source: SGLang 0.5's documentation of its native API: `POST /generate` with `input_ids`, `return_logprob` and
`sampling_params`; `POST /load_lora_adapter` and `/unload_lora_adapter`; `POST /pause_generation`,
`/update_weights_from_disk` and `/continue_generation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.vllm import VLLM, server_path

SEED_BITS = 31
"""Of `sampling_seed`, which is read by servers with --enable-deterministic-inference."""


class _Finish(msgspec.Struct):
    type: str


class _MetaInfo(msgspec.Struct):
    finish_reason: _Finish
    prompt_tokens: int
    output_token_logprobs: list[tuple[float, int, str | None]]


class _Answer(msgspec.Struct):
    meta_info: _MetaInfo


class _Outcome(msgspec.Struct):
    success: bool
    message: str = ""
    error_message: str = ""


_answers, _outcomes = msgspec.json.Decoder(_Answer), msgspec.json.Decoder(_Outcome)


class SGLang(VLLM):
    """Sample from an SGLang server; what is promised is what `VLLM` promises.

    Equal keys draw equally where the server was started with `--enable-deterministic-inference`. Adapters need
    `--enable-lora`, room for two and `--max-lora-rank`.
    """

    kind = "SGLang"
    takes_schema = False

    async def load_weights(self, folder: Path, *, version: int | None = None) -> int:
        """Have the server read all weights from the checkpoint in `folder`; returns their version, by default the next.

        Answers under way go back to its queue and go on under the new weights: their version is the one they began
        under. What was cached under the old weights is forgotten.
        """
        newest = self.version + 1 if version is None else version
        await self._control("pause_generation", {"mode": "retract"})
        try:
            update = {"model_path": server_path(folder), "weight_version": str(newest), "flush_cache": True}
            await self._told("update_weights_from_disk", update)
            self.version = newest
        finally:
            await self._control("continue_generation")
        return newest

    async def _adapter(self, verb: str, body: Mapping[str, str]) -> None:
        wanted = {"lora_name", "lora_path"} if verb == "load" else {"lora_name"}
        await self._told(f"{verb}_lora_adapter", {name: value for name, value in body.items() if name in wanted})

    async def _told(self, call: str, body: Mapping[str, Any]) -> None:
        """One of the calls whose answer says whether it succeeded."""

        def read(answer: bytes) -> _Outcome:
            try:
                return _outcomes.decode(answer)
            except msgspec.MsgspecError as error:
                raise PolicyFailure(f"{call} was not answered as documented: {error}") from error

        outcome = await self.ask(self.root / call, msgspec.json.encode(body), draw=call, read=read)
        if not outcome.success:
            raise PolicyFailure(f"{call} failed: {outcome.message or outcome.error_message}")

    @property
    def _sampling_url(self) -> Any:
        return self.root / "generate"

    def _read(self, answer: bytes, prompt: Sequence[int], version: int) -> SampledTokens:
        try:
            told = _answers.decode(answer).meta_info
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise PolicyFailure(f"no token ids with log-probabilities: {error}") from error
        if told.prompt_tokens != len(prompt):
            raise PolicyFailure(f"the server read {told.prompt_tokens} ids and was sent {len(prompt)}")
        if not told.output_token_logprobs:
            raise PolicyFailure("no token ids with log-probabilities")
        if told.finish_reason.type not in ("stop", "length"):
            raise PolicyFailure(f"the answer ended as {told.finish_reason.type!r}", transient=True)
        return SampledTokens(
            ids=tuple(token for _, token, _ in told.output_token_logprobs),
            logprobs=tuple(logprob for logprob, _, _ in told.output_token_logprobs),
            finish=told.finish_reason.type,
            version=version,
        )

    def _body(self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int) -> bytes:
        params: dict[str, Any] = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "no_stop_trim": True,
            "skip_special_tokens": False,
            "sampling_seed": key % 2**SEED_BITS,
        }
        if sampling.stop:
            params["stop"] = list(sampling.stop)
        if self._ends:
            params["stop_token_ids"] = self._ends
        body: dict[str, Any] = {"input_ids": list(prompt), "sampling_params": params, "return_logprob": True}
        if self.model != self.base:
            body["lora_path"] = self.model
        return msgspec.json.encode(body)
