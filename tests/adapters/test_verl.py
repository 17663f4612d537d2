"""Episodes as verl's agent loop returns them, sampled through a stand-in for verl's server by a real model."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from toys import TOKENIZER, Twice, fresh
from wanderlust.adapters.verl import play_episode
from wanderlust.environment import Environment, Episode
from wanderlust.errors import EnvironmentFailure
from wanderlust.policies.base import derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.types import Task, user

ROW = {"index": 2, "seed": 5, "sample_index": 1}


class Server:
    """`server_manager.generate` with our engine behind it; remembers what it was asked."""

    def __init__(self) -> None:
        self.sampler, self.asked = LocalPolicy.of(fresh(0), TOKENIZER).sampler, list[dict[str, Any]]()

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append({"request_id": request_id, "prompt_ids": prompt_ids, **sampling_params})
        how = SamplingOptions(max_tokens=sampling_params["max_tokens"], temperature=sampling_params["temperature"])
        drawn = await self.sampler.sample(prompt_ids, how, key=derive_key(request_id, len(prompt_ids)))
        return SimpleNamespace(token_ids=list(drawn.ids), log_probs=list(drawn.logprobs))


def play(env: Environment, server: Server, row: dict[str, Any] = ROW) -> list[dict[str, Any]]:
    how = {"params": {"temperature": 1.0, "top_p": 1.0}, "sampling": SamplingOptions(max_tokens=3)}
    return asyncio.run(play_episode(env, row, generate=server.generate, renderer=Renderer(TOKENIZER), **how))


def test_an_episode_is_one_row_of_exact_tokens() -> None:
    server = Server()
    (out,) = play(Twice(), server)
    first, second = server.asked
    whole, count = out["prompt_ids"] + out["response_ids"], len(out["response_ids"])
    assert out["prompt_ids"] == first["prompt_ids"]
    assert whole[: len(second["prompt_ids"])] == second["prompt_ids"]  # the second turn extends what was sampled
    assert first["request_id"] == second["request_id"] == "twice-c/5/0/agent/1"
    assert first["logprobs"] is True
    assert len(out["response_mask"]) == len(out["response_logprobs"]) == count
    assert all((p == 0.0) == (on == 0) for p, on in zip(out["response_logprobs"], out["response_mask"], strict=True))
    assert sum(out["response_mask"]) < count
    assert out["num_turns"] == 4


def test_siblings_differ_and_rewards_are_the_environments() -> None:
    rows = [{"index": n % 4, "seed": 0, "sample_index": n} for n in range(24)]
    told = [play(Twice(), Server(), row)[0] for row in rows]
    assert {one["reward_score"] for one in told} <= {0.0, 0.5, 1.0}
    assert len({tuple(one["response_ids"]) for one in told}) > 4
    for one, row in zip(told, rows, strict=True):
        said = TOKENIZER.convert_ids_to_tokens(one["response_ids"])
        if said[1:2] == ["<|end|>"] and said[0] == "abcd"[(row["index"] + 1) % 4]:
            assert one["reward_score"] >= 0.5


class Odd(Environment):
    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("a"))
        raise RuntimeError("oh")

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="odd")]


def test_failures_are_raised_and_not_rewarded() -> None:
    with pytest.raises(EnvironmentFailure, match="odd: EnvironmentFailure: RuntimeError: oh"):
        play(Odd(), Server(), {"index": 0})


def test_a_server_without_logprobs_is_told() -> None:
    async def generate(**asked: Any) -> Any:
        return SimpleNamespace(token_ids=[7], log_probs=None)

    server = Server()
    server.generate = generate  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFailure, match="sampled 1 tokens with 0 log-probabilities"):
        play(Twice(), server)
