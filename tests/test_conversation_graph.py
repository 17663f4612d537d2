"""Several conversations in one seat: requests at once, branches, sub-agents and rewritten histories, token by token."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StopEpisode
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.runner.engine import rollout
from wanderlust.store.formats import conversations, render_atif
from wanderlust.store.records import pack, pack_tokens, unpack
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import (
    Completion,
    Message,
    Rollout,
    Task,
    Tokens,
    ToolCall,
    Trajectory,
    Turn,
    assistant,
    system,
    user,
)


def echo(messages, rng):
    return assistant(f"{len(messages)}:{messages[-1].content}")


class Talks:
    """A program that keeps conversations with a seat by itself, as black-box agents do."""

    def __init__(self, agent: Agent):
        self.agent = agent

    async def ask(self, before: list[Message], *new: Message) -> list[Message]:
        context = [*before, *new]
        return [*context, await self.agent.act_with_context(context)]


def drawn(rng: Random) -> Message:
    return assistant(str(rng.random()))


def test_interleaved_conversations_are_two_with_one_key_each():
    agent = Agent(Scripted(echo), key="t/0/0/agent")

    async def go():
        talks = Talks(agent)
        one = two = []
        for n in range(3):
            one = await talks.ask(one, user(f"one {n}"))
            two = await talks.ask(two, user(f"two {n}"))
        return one, two

    one, two = asyncio.run(go())
    trajectory = agent.trajectory
    assert [trajectory.parent(n) for n in range(6)] == [None, None, 0, 1, 2, 3]
    assert trajectory.ends == [4, 5]
    assert [trajectory.conversation(end) for end in trajectory.ends] == [one, two]
    assert [len(turn.observation) for turn in trajectory.turns] == [1] * 6
    assert len(agent._graph.keys) == 3  # the seat's own, which a plain `act` would have


def test_parallel_calls_are_under_way_at_once():
    together = asyncio.Barrier(8)

    async def slowly(messages, rng=None):
        await together.wait()
        return echo(messages, rng)

    agent = Agent(Scripted(slowly), key="t/0/0/agent")

    async def go():
        await asyncio.gather(*(agent.act_with_context([user(f"part {n}")]) for n in range(8)))

    asyncio.run(go())
    assert len(agent.trajectory.ends) == 8


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_draws_do_not_depend_on_the_order_of_requests_at_once(order):
    """Four continuations of one turn, two of them equal, drawn in any order of arrival."""
    policy = Scripted(lambda messages, rng: drawn(rng))
    asked = ["a", "b", "b", "c"]

    async def go(order):
        agent = Agent(policy, key="t/0/0/agent")
        begun = await Talks(agent).ask([], user("begin"))
        said = await asyncio.gather(*(Talks(agent).ask(begun, user(asked[n])) for n in order))
        return sorted((talk[-2].content, talk[-1].content) for talk in said)

    said = asyncio.run(go(order))
    assert len({answer for _, answer in said}) == 4
    assert asyncio.run(go(range(4))) == said


def test_answers_that_come_back_otherwise_written_are_taken_as_recorded():
    call = ToolCall(id="c1", name="find", arguments='{"b":1,  "a": [2]}')
    said = replace(assistant("Wait. ", call), reasoning="hm")
    agent = Agent(Scripted([said, "done"]), key="k")

    async def go():
        await agent.act_with_context([user("go")])
        back = assistant("Wait.", replace(call, arguments=json.dumps({"a": [2], "b": 1})))
        result = Message("tool", "3", tool_call_id="c1")
        await agent.act_with_context([user("go"), back, result])

    asyncio.run(go())
    assert agent.trajectory.is_one_conversation
    assert agent.messages == agent.trajectory.messages
    assert agent.messages[1] == said


def test_a_turn_that_fails_leaves_its_place_free_and_the_others_alone():
    class Fails:
        def __init__(self):
            self.keys = []

        async def complete(self, messages, tools=(), *, key=""):
            self.keys.append(key)
            await asyncio.sleep(0)
            if messages[-1].content == "fail" and len(self.keys) < 4:
                raise RuntimeError("no")
            return Completion(message=echo(messages, None))

    agent = Agent(Fails(), key="k")

    async def go():
        begun = await Talks(agent).ask([], user("begin"))
        one, two = await asyncio.gather(
            Talks(agent).ask(begun, user("fail")), Talks(agent).ask(begun, user("more")), return_exceptions=True
        )
        assert isinstance(one, PolicyFailure)
        assert agent.interruption is one  # the turn beside it began before, and does not hide it
        await Talks(agent).ask(begun, user("fail"))
        assert agent.interruption is None
        return two

    asyncio.run(go())
    assert [agent.trajectory.parent(n) for n in range(3)] == [None, 0, 0]
    assert agent.policy.keys[1] == agent.policy.keys[3] == agent.policy.keys[0]  # tried again under the same key
    assert agent.policy.keys[2] != agent.policy.keys[0]


def test_turns_under_way_count_for_the_limit():
    agent = Agent(Scripted(lambda messages, rng: asyncio.sleep(0.01, echo(messages, rng))), limits=Limits(max_turns=3))

    async def go():
        return await asyncio.gather(*(agent.act_with_context([user(str(n))]) for n in range(5)), return_exceptions=True)

    said = asyncio.run(go())
    assert [isinstance(one, StopEpisode) for one in said] == [False] * 3 + [True] * 2
    assert len(agent.trajectory.turns) == 3


class Parallel(Environment):
    """Three sub-agents at once after a common beginning, then a summary; and a history that is rewritten."""

    def tasks(self, split="train"):
        return [Task(id="t")]

    async def run(self, episode):
        talks = Talks(episode.agent)
        begun = await talks.ask([], system("s"), user("begin"))
        parts = await asyncio.gather(*(talks.ask(begun, user(f"part {n}")) for n in range(3)))
        await talks.ask(begun, user(" ".join(part[-1].content for part in parts)))
        await talks.ask([user("in short")])
        await episode.agent.act(user("more"))
        episode.reward("done", 1.0)


def played(policy) -> Rollout:
    one = asyncio.run(rollout(Parallel(), Task(id="t"), policy, seed=1))
    assert one.error is None, one.error
    return one


def test_a_branched_rollout_is_stored_replayed_and_exported_whole():
    one = played(Scripted(lambda messages, rng: drawn(rng)))
    trajectory = one.trajectory
    assert [trajectory.parent(n) for n in range(7)] == [None, 0, 0, 0, 0, None, 5]
    assert unpack(pack(one), pack_tokens(one)).trajectory.turns == trajectory.turns
    again = played(Recorded(one))
    assert again.trajectory.turns == trajectory.turns
    rows = list(conversations(one))
    assert [len(row["messages"]) for row in rows] == [5, 5, 5, 5, 4]
    steps = render_atif(one, trajectory)["steps"]
    assert [step.get("extra", {}).get("continues_step") for step in steps if step["source"] == "user"] == [
        None, None, 3, 3, 3, None, None,
    ]  # fmt: skip


def local() -> LocalPolicy:
    tokenizer = fresh_tokenizer(["You are X.", "begin part 012 in short more", "said it"] * 20)
    model = fresh_model(tokenizer, ModelShape(positions=512), seed=1)
    return LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=6), seed=3)


def read_and_said(trajectory: Trajectory) -> list[tuple[list[int], tuple[int, ...], tuple[float, ...]]]:
    """Per turn, the ids before it, and what was sampled."""
    after: list[list[int]] = []
    out = []
    for number, turn in enumerate(trajectory.turns):
        tokens, parent = turn.tokens, trajectory.parent(number)
        assert tokens is not None
        before = after[parent] if tokens.offset and parent is not None else []
        assert tokens.offset == len(before)
        context = [*before, *tokens.prompt]
        after.append([*context, *tokens.completion])
        out.append((context, tokens.completion, tokens.logprobs))
    return out


def test_branches_begin_with_the_ids_that_were_sampled_and_train_once():
    policy = local()
    one = played(policy)
    turns = read_and_said(one.trajectory)
    begun = [*turns[0][0], *turns[0][1]]
    assert all(context[: len(begun)] == begun for context, _, _ in turns[1:5])
    samples = to_samples(replace_advantage(one.trajectory))
    assert len(samples) == len(one.trajectory.ends) == 5
    assert sum(sum(sample.mask) for sample in samples) == sum(len(said) for _, said, _ in turns)
    for context, said, logprobs in turns:  # every turn is trained on in the context in which it was sampled
        place = slice(len(context), len(context) + len(said))
        whole = [*context, *said]
        (sample,) = [s for s in samples if s.ids[: len(whole)] == whole and all(s.mask[place])]
        assert tuple(sample.logprobs[place]) == logprobs
        logits = policy_logprobs(policy, whole)
        assert logits[place.start - 1 :] == pytest.approx(logprobs, abs=1e-4)
    assert not policy._conversations  # all of the seat's conversations were released


def replace_advantage(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, advantage=1.0)


def policy_logprobs(policy: LocalPolicy, ids: list[int]) -> list[float]:
    with torch.no_grad():
        logits = policy.engine.model(torch.tensor([ids])).logits[0]
    table = torch.log_softmax(logits.float(), dim=-1)
    return [float(table[n, token]) for n, token in enumerate(ids[1:])]


def fewest_sequences(contexts: list[list[int]], whole: list[list[int]]) -> int:
    """Turns less the most pairs in which one turn's whole sequence begins another's context, each taken once."""
    follows = [
        [later for later in range(n + 1, len(whole)) if contexts[later][: len(whole[n])] == whole[n]]
        for n in range(len(whole))
    ]
    taken: dict[int, int] = {}

    def match(turn: int, seen: set[int]) -> bool:
        for later in follows[turn]:
            if later not in seen:
                seen.add(later)
                if later not in taken or match(taken[later], seen):
                    taken[later] = turn
                    return True
        return False

    return len(whole) - sum(match(turn, set()) for turn in range(len(whole)))


PIECE = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(-1, 5), PIECE, PIECE), min_size=1, max_size=9), st.booleans())
def test_training_sequences_are_exact_and_as_few_as_possible(drawn, told):
    """Any forest of turns: as many samples as token sequences that no other continues, each token trained once."""
    turns, whole = [], []
    for chosen, prompt, said in drawn:
        parent = min(chosen, len(turns) - 1)
        before = whole[parent] if parent >= 0 else []
        tokens = Tokens(
            prompt=tuple(prompt) if told else (*before, *prompt),
            completion=tuple(said),
            logprobs=tuple(-1.0 - n for n in range(len(said))),
            offset=len(before) if told else 0,
        )
        turns.append(
            Turn(
                observation=(user("x"),),
                action=assistant("y"),
                tokens=tokens,
                resets_context=parent < 0,
                parent=parent if parent >= 0 else None,
            )
        )
        whole.append([*before, *prompt, *said])
    samples = to_samples(Trajectory(turns=turns, advantage=1.0))
    contexts = [ids[: len(ids) - len(turn.tokens.completion)] for ids, turn in zip(whole, turns, strict=True)]
    assert len(samples) == fewest_sequences(contexts, whole)
    assert sum(sum(sample.mask) for sample in samples) == sum(len(turn.tokens.completion) for turn in turns)
    for turn, context in zip(turns, contexts, strict=True):
        said = list(turn.tokens.completion)
        at = slice(len(context), len(context) + len(said))
        assert any(s.ids[: at.stop] == context + said and all(s.mask[at]) for s in samples)
