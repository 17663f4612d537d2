"""Budget forcing: thinking is ended and extended while it is sampled, in the local engine, our server and vLLM."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer import VLLM_CPU, made

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.base import NOT_SAMPLED, SampledTokens, SamplingOptions, ThinkingBudget
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.resolve import PolicyOptions, resolve_judge_policy
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import VLLMOptions, start_vllm_servers
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import make_served_model
from wanderlust.serving.model_api import ModelAPI
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import AnswerOptions, Completion, assistant, user

TOKENIZER = fresh_tokenizer(["<think>a b c</think> <answer>1</answer> Wait,", "one two three"] * 20)
RENDERER = Renderer(TOKENIZER)
END, WAIT = (RENDERER.encode(text) for text in ("</think>", " Wait,"))
ASKED = [user("one")]


def model() -> Any:
    return fresh_model(TOKENIZER, ModelShape(width=32, layers=1, inner=48, positions=256), seed=3)


def answers(policy: TokenPolicy, count: int = 12) -> list[Completion]:
    async def go() -> list[Completion]:
        return list(await asyncio.gather(*(policy.complete(ASKED, key=f"t/0/{n}/agent") for n in range(count))))

    return asyncio.run(go())


def local(most: int = 60, **bounds: Any) -> LocalPolicy:
    thinking = ThinkingBudget(**bounds) if bounds else None
    return LocalPolicy.of(model(), TOKENIZER, SamplingOptions(max_tokens=most, thinking=thinking), seed=1)


def thought(done: Completion) -> int:
    """Ids of the thinking without its end; -1 where it does not end."""
    assert done.tokens is not None
    ids = RENDERER_SPLIT(done.tokens.completion)
    return -1 if ids is None else len(ids)


RENDERER_SPLIT = local().thinking_of


def holds(found: list[Completion], *, least: int, most: int, answer: int) -> None:
    for done in found:
        assert done.tokens is not None
        ids, logprobs = done.tokens.completion, done.tokens.logprobs
        assert len(ids) == len(logprobs) <= answer
        assert thought(done) <= most
        if thought(done) >= 0:
            assert thought(done) >= min(least, most)
            assert done.usage["reasoning_tokens"] > thought(done)
        written = [n for n, logprob in enumerate(logprobs) if logprob == 0.0]
        assert (done.finish == NOT_SAMPLED) == bool(written)
        assert {ids[n] for n in written} <= {*END, *WAIT}


def test_thinking_is_ended_and_extended_and_what_was_written_is_known() -> None:
    free = answers(local())
    short, long, both = (
        answers(local(**bounds))
        for bounds in ({"max_tokens": 5}, {"min_tokens": 20}, {"min_tokens": 8, "max_tokens": 12})
    )
    holds(short, least=0, most=5, answer=60)
    holds(long, least=20, most=60, answer=60)
    holds(both, least=8, most=12, answer=60)
    assert any(done.finish == NOT_SAMPLED and thought(done) == 5 for done in short)
    assert any(" Wait," in done.message.content for done in long)
    assert {len(done.tokens.completion) for done in free if done.tokens} != {5}


def test_equal_keys_draw_equally_and_bounds_that_are_never_met_change_nothing() -> None:
    assert answers(local(max_tokens=5)) == answers(local(max_tokens=5))
    plain, wide = answers(local()), answers(local(min_tokens=0, max_tokens=59))
    for one, other in zip(plain, wide, strict=True):
        assert one.tokens is not None
        assert other.tokens is not None
        upto = min(59, len(one.tokens.completion) if thought(one) < 0 else thought(one))
        assert one.tokens.completion[:upto] == other.tokens.completion[:upto]


def test_a_conversation_goes_on_after_a_forced_answer() -> None:
    policy = local(max_tokens=5)

    async def go() -> tuple[Completion, Completion]:
        first = await policy.complete(ASKED, key="t/0/0/agent")
        talk = [*ASKED, first.message, user("two")]
        return first, await policy.complete(talk, key="t/0/0/agent")

    first, second = asyncio.run(go())
    assert first.tokens is not None
    assert second.tokens is not None
    assert second.tokens.offset == len(first.tokens.prompt) + len(first.tokens.completion)


def test_stop_texts_and_shorter_answers_still_hold() -> None:
    async def go() -> Completion:
        options = AnswerOptions(stop=("</think>",), max_tokens=30)
        return await local(max_tokens=5).complete_with_options(options, ASKED, key="t/0/0/agent")

    done = asyncio.run(go())
    assert done.tokens is not None
    assert len(done.tokens.completion) <= 30
    assert "</think>" not in done.message.content


class Scripted:
    """A sampler of fixed parts."""

    def __init__(self, *parts: tuple[str, str]):
        self.parts, self.prompts = list(parts), list[tuple[int, ...]]()

    async def sample(self, prompt: Any, sampling: SamplingOptions, *, key: int, session: str = "") -> SampledTokens:
        text, finish = self.parts.pop(0)
        self.prompts.append(tuple(prompt))
        ids = RENDERER.encode(text) + ((TOKENIZER.eos_token_id,) if finish == "end" else ())
        return SampledTokens(ids=ids, logprobs=(-0.5,) * len(ids), finish="length" if finish == "length" else "stop")

    def release(self, session: str) -> None: ...


def test_each_part_continues_what_was_kept_and_written() -> None:
    sampler = Scripted(("one</think>", "stop"), ("two", "end"), (" three", "length"), ("1", "end"))
    least = 15
    thinking = ThinkingBudget(min_tokens=least, max_tokens=30)
    policy = TokenPolicy(sampler, RENDERER, SamplingOptions(max_tokens=40, thinking=thinking))
    # The third part is reported as cut by its length, though 30 ids are not reached: a full context.
    done = asyncio.run(policy.complete(ASKED, key="a/0/0/agent"))
    assert done.message.content == "one Wait,two Wait, three"
    prompt = RENDERER.start(ASKED)
    said = [RENDERER.answer_text(ids[len(prompt) :]) for ids in sampler.prompts]
    assert said == ["", "one Wait,", "one Wait,two Wait,"]


@pytest.mark.parametrize(
    "bounds",
    [{"min_tokens": -1}, {"max_tokens": 0}, {"min_tokens": 9, "max_tokens": 8}, {"end": ""}, {"extension": ""}],
)
def test_bounds_that_nothing_can_keep_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        ThinkingBudget(**bounds)
    assert "\n" not in str(refused.value)


def test_thinking_beyond_the_answer_or_the_context_is_refused() -> None:
    with pytest.raises(UsageError, match=r"thinking of 60 tokens leaves no answer: .* may have 60 together"):
        local(max_tokens=60)
    with pytest.raises(UsageError, match=r"thinking of 256 tokens leaves no answer: .* may have 256 together"):
        local(most=1000, min_tokens=256)


def test_the_options_are_a_checkpoints_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_pretrained(tmp_path / "start", model(), TOKENIZER)
    words = ["eval", "legal-move", "-n", "2", "--max-tokens", "40"]
    for policy, more, line in (
        ("http://127.0.0.1:1/v1", ["--model", "m", "--max-thinking", "5"], "need a checkpoint's token ids"),
        (str(tmp_path / "start"), ["--min-thinking", "40"], "thinking of 40 tokens leaves no answer"),
        (str(tmp_path / "start"), ["--min-thinking", "9", "--max-thinking", "5"], "thinking of 9 to 5 tokens"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--policy", policy, *more])
        said = capsys.readouterr().err
        assert (ended.value.code, line in said) == (2, True), said
    with pytest.raises(SystemExit) as ended:
        main([*words, "--policy", str(tmp_path / "start"), "--max-thinking", "5", "--json"])
    assert ended.value.code == 0
    assert '"tokens_reasoning": 0' not in capsys.readouterr().out


def test_judges_think_as_they_like() -> None:
    options = PolicyOptions(model="m", thinking=ThinkingBudget(max_tokens=5))
    assert resolve_judge_policy("http://127.0.0.1:1/v1", options).kind == "endpoint"


def test_over_our_own_server_the_bounds_hold_as_here() -> None:
    async def go() -> list[Completion]:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(AgentServer())
            key = await stack.enter_async_context(
                server.serving(ModelAPI(make_served_model("tiny", model(), TOKENIZER)))
            )
            client = VLLM(server.url, "tiny", api_key=key, ends=RENDERER.end_ids)
            return await forced(await stack.enter_async_context(client))

    holds(asyncio.run(go()), least=8, most=12, answer=60)


async def forced(sampler: Any) -> list[Completion]:
    """Answers of a sampler over HTTP, by keys of their own."""
    thinking = ThinkingBudget(min_tokens=8, max_tokens=12)
    policy = TokenPolicy(sampler, RENDERER, SamplingOptions(max_tokens=60, thinking=thinking), seed=1)
    return list(await asyncio.gather(*(policy.complete(ASKED, key=f"t/0/{n}/agent") for n in range(12))))


@pytest.mark.skipif(made(VLLM_CPU) is None, reason="vLLM is not installed: make peers")
@pytest.mark.xdist_group("vllm")
def test_over_real_vllm_the_bounds_hold_as_here(tmp_path: Path) -> None:
    python = made(VLLM_CPU)
    assert python is not None
    shape = ModelShape(width=64, layers=1, inner=96, positions=256, heads=2)
    save_pretrained(tmp_path / "start", fresh_model(TOKENIZER, shape, seed=3), TOKENIZER)
    options = VLLMOptions(command=f"{python.parent / 'vllm'} serve", concurrency=16)

    async def go() -> tuple[list[Completion], str, list[list[float]]]:
        async with start_vllm_servers(
            tmp_path / "start", options, count=1, logs=tmp_path, end_ids=RENDERER.end_ids
        ) as servers:
            found = await forced(servers)
            policy = TokenPolicy(servers, RENDERER, SamplingOptions(max_tokens=60))
            text = await policy.answer_after(RENDERER.start(ASKED), RENDERER.encode("one"), key="k")
            here = LocalPolicy.of(*load_pretrained(tmp_path / "start"))
            return found, text, [await one.choice_logprobs(ASKED, ["a", "one two", "b"]) for one in (policy, here)]

    found, text, likely = asyncio.run(go())
    assert likely[0] == pytest.approx(likely[1], abs=0.02)
    holds(found, least=8, most=12, answer=60)
    assert any(done.finish == NOT_SAMPLED for done in found)
    assert text.startswith("one</think>")


def test_an_answer_may_be_asked_for_after_any_part_of_the_thinking() -> None:
    policy = local()
    ids = (*RENDERER.encode("a b c"), *END, *RENDERER.encode(" 1"))
    assert list(policy.thinking_of(ids) or ()) == list(RENDERER.encode("a b c"))
    assert policy.thinking_of(RENDERER.encode("a b c")) is None
    text = asyncio.run(policy.answer_after(RENDERER.start(ASKED), RENDERER.encode("a"), key="k"))
    assert text.startswith("a</think>")
    assert assistant(text).content == text
