"""Our episodes inside verl: the fields that an `AgentLoopBase` of verl 0.9 returns, without importing it.

verl samples and trains, its agent loop is a coroutine per rollout. `play_episode` plays one with a policy that asks
verl's own server for tokens; docs/integrations.md has the ten lines of the loop itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from wanderlust.environment import Environment, Limits
from wanderlust.errors import EnvironmentFailure, PolicyFailure
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollout
from wanderlust.runner.stepper import task_by_index
from wanderlust.training.batch.samples import to_samples
from wanderlust.types import Status

Generate = Callable[..., Awaitable[Any]]
"""verl's `server_manager.generate(request_id=..., prompt_ids=..., sampling_params=...)`."""


class VerlSampler:
    """A sampler that is verl's server; how it draws is verl's configuration."""

    def __init__(self, generate: Generate, params: Mapping[str, Any], *, sample_index: str = ""):
        self._generate, self._params, self._sample_index = generate, dict(params), sample_index

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer. The request id stays within a conversation, and differs between rollouts of a group."""
        parameters = {**self._params, "logprobs": True, "max_tokens": sampling.max_tokens}
        id = f"{session or key}/{self._sample_index}"
        output = await self._generate(request_id=id, prompt_ids=list(prompt), sampling_params=parameters)
        ids, logprobs = tuple(output.token_ids), tuple(output.log_probs or ())
        if not ids or len(ids) != len(logprobs):
            raise PolicyFailure(f"verl's server sampled {len(ids)} tokens with {len(logprobs)} log-probabilities")
        return SampledTokens(ids=ids, logprobs=logprobs, finish="length" if len(ids) >= sampling.max_tokens else "stop")

    def release(self, session: str) -> None:
        """Nothing is kept."""


async def play_episode(
    env: Environment,
    row: Mapping[str, Any],
    *,
    generate: Generate,
    renderer: Renderer,
    params: Mapping[str, Any],
    sampling: SamplingOptions,
    limits: Limits | None = None,
) -> list[dict[str, Any]]:
    """One episode of the task `row["index"]` with the seed `row["seed"]`: fields of an `AgentLoopOutput` per sequence.

    Most episodes are one sequence; a context that was rewritten begins another, with the same reward. verl repeats a
    row for each sample: `row["sample_index"]` tells their request ids apart. Raises EnvironmentFailure for an episode
    that has no score: there is no row for what failed.
    """
    task = task_by_index(env, str(row.get("split", "train")), int(row["index"]))
    sampler = VerlSampler(generate, params, sample_index=str(row.get("sample_index", "")))
    policy = TokenPolicy(sampler, renderer, sampling)
    played = await rollout(env, task, policy, seed=int(row.get("seed", 0)), limits=limits)
    trajectory = played.trajectory
    if played.status is Status.ERROR or trajectory.score is None:
        raise EnvironmentFailure(f"{task.id}: {played.stop_reason}: {played.error}", transient=played.transient)
    outputs = []
    for sample in to_samples(trajectory):
        start = sample.mask.index(True)  # the prompt ends at the first sampled token
        outputs.append(
            {
                "prompt_ids": sample.ids[:start],
                "response_ids": sample.ids[start:],
                "response_mask": [int(on) for on in sample.mask[start:]],
                "response_logprobs": sample.logprobs[start:],
                "reward_score": trajectory.score.reward,
                "num_turns": 2 * len(trajectory.turns),
            }
        )
    return outputs
