"""The local policy against `transformers` itself: same greedy tokens, same log-probabilities, whatever the batch."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

import toys
from patience import PATIENCE
from wanderlust.errors import ContextFull, PolicyFailure
from wanderlust.policies.chat_template import PrefixWarning, Renderer, Rendering
from wanderlust.policies.local import ExploringStarts, LocalPolicy, SamplingOptions
from wanderlust.policies.local.inference_engine import NGramSpeculator
from wanderlust.policies.local.kv_cache import BatchedKVCache
from wanderlust.policies.streaming_text import StopTexts
from wanderlust.training.config import TrainConfig
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.trainers.replica import Replica
from wanderlust.types import Completion, Message, system, user

TEXTS = ["You are X.", "You start.\n012\n345\n678", "O plays 4.\nX12\n3O5\n678", "<think>block</think><move>2</move>"]
TOKENIZER = fresh_tokenizer(TEXTS * 20)
SMALL = dict(
    vocab_size=len(TOKENIZER),
    hidden_size=32,
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=None,
    eos_token_id=TOKENIZER.eos_token_id,
)


def llama() -> Any:
    return fresh_model(TOKENIZER, ModelShape(positions=256), seed=1)


def repetitive() -> Any:
    """A model sure enough of itself to be guessed."""
    model = llama()
    with torch.no_grad():
        model.lm_head.weight *= 40
    return model


def other(kind: str) -> Any:
    torch.manual_seed(2)
    if kind == "grouped-queries":
        return Qwen3ForCausalLM(Qwen3Config(**SMALL, num_hidden_layers=2, head_dim=8)).eval()
    if kind == "sliding-window":
        return MistralForCausalLM(MistralConfig(**SMALL, num_hidden_layers=2, sliding_window=9)).eval()
    kinds = ["conv", "full_attention", "conv"]
    return Lfm2ForCausalLM(Lfm2Config(**SMALL, num_hidden_layers=3, layer_types=kinds)).eval()


async def talk(policy: LocalPolicy, number: int, *, key: str = "k") -> list[Completion]:
    """A conversation of its own length and wording; what the model says decides nothing here."""
    rng = random.Random(number)
    messages: list[Message] = [system("You are X."), user("You start.\n012\n345\n678")]
    out = []
    for _ in range(rng.randint(1, 4)):
        done = await policy.complete(messages, key=f"{key}{number}" if key else "")
        out.append(done)
        more = rng.choice(["O plays 4.\nX12\n3O5\n678", "Illegal.", "Go on, please: " + "x" * rng.randint(1, 9)])
        messages = [*messages, done.message, user(more)]
    policy.release(f"{key}{number}")
    return out


def talks(policy: LocalPolicy, numbers: Sequence[int], *, key: str = "k") -> list[list[Completion]]:
    async def go() -> list[list[Completion]]:
        return await asyncio.gather(*(talk(policy, n, key=key) for n in numbers))

    return asyncio.run(go())


def sequence(turns: list[Completion]) -> list[tuple[int, list[int], tuple[float, ...]]]:
    """Per turn: where the sampled part starts, the whole sequence up to its end, its log-probabilities."""
    ids: list[int] = []
    out = []
    for turn in turns:
        assert turn.tokens is not None
        assert turn.tokens.offset == len(ids)
        ids = [*ids, *turn.tokens.prompt]
        start = len(ids)
        ids = [*ids, *turn.tokens.completion]
        out.append((start, ids, turn.tokens.logprobs))
    return out


@pytest.mark.parametrize("kind", ["llama", "grouped-queries", "sliding-window", "convolutions"])
def test_greedy_equals_generate_token_for_token(kind: str) -> None:
    model = llama() if kind == "llama" else other(kind)
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(temperature=0, max_tokens=9))
    assert isinstance(policy.engine.kv_cache, BatchedKVCache)
    for turns in talks(policy, range(24)):
        for start, ids, _ in sequence(turns):
            prompt = torch.tensor([ids[:start]])
            said = model.generate(prompt, max_new_tokens=9, do_sample=False, attention_mask=torch.ones_like(prompt))
            assert said[0, start:].tolist() == ids[start:]


@pytest.mark.parametrize("kind", ["llama", "grouped-queries", "sliding-window", "convolutions"])
def test_logprobs_equal_a_plain_forward_pass(kind: str) -> None:
    model = llama() if kind == "llama" else other(kind)
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(temperature=0.7, max_tokens=12))
    worst = 0.0
    for turns in talks(policy, range(24)):
        for start, ids, logprobs in sequence(turns):
            with torch.no_grad():
                plain = (model(torch.tensor([ids])).logits[0] / 0.7).log_softmax(-1)
            for place, logprob in enumerate(logprobs, start):
                worst = max(worst, abs(float(plain[place - 1, ids[place]]) - logprob))
    assert worst < 1e-4


def test_draws_depend_on_the_key_alone_not_on_the_company() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=8))
    together = talks(policy, range(30))
    assert [c.message for c in talks(policy, [7])[0]] == [c.message for c in together[7]]
    assert [c.message for c in talks(policy, [7], key="other")[0]] != [c.message for c in together[7]]


def test_draws_follow_the_distribution() -> None:
    model = llama()
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(max_tokens=1, temperature=0.5))

    async def many() -> list[int]:
        asked = [policy.complete([user("hi")], key=f"{n}") for n in range(2000)]
        return [c.tokens.completion[0] for c in await asyncio.gather(*asked) if c.tokens]

    drawn = asyncio.run(many())
    prompt = torch.tensor([policy.renderer.start([user("hi")])])
    with torch.no_grad():
        expected = (model(prompt).logits[0, -1] / 0.5).softmax(-1)
    top = expected.argsort(descending=True)[:20]
    share = torch.tensor([drawn.count(int(t)) / len(drawn) for t in top])
    assert float((share - expected[top]).abs().max()) < 0.03


def test_top_p_never_leaves_the_nucleus() -> None:
    model = llama()
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(max_tokens=1, top_p=0.05))

    async def many() -> set[int]:
        asked = [policy.complete([user("hi")], key=f"{n}") for n in range(300)]
        return {c.tokens.completion[0] for c in await asyncio.gather(*asked) if c.tokens}

    prompt = torch.tensor([policy.renderer.start([user("hi")])])
    with torch.no_grad():
        likely = model(prompt).logits[0, -1].softmax(-1).sort(descending=True)
    nucleus = int((likely.values.cumsum(-1) - likely.values < 0.05).sum())
    assert asyncio.run(many()) <= set(likely.indices[:nucleus].tolist())


def test_few_rows_serve_many_conversations_with_the_same_answers() -> None:
    plenty = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=6))
    scarce = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=6))
    scarce.engine.max_rows = 3
    want = [[c.message for c in turns] for turns in talks(plenty, range(12))]
    assert [[c.message for c in turns] for turns in talks(scarce, range(12))] == want
    assert isinstance(scarce.engine.kv_cache, BatchedKVCache)
    assert not scarce.engine.kv_cache.contexts


def test_only_new_tokens_are_read_and_finished_rows_are_free() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=6))
    turns = [t for conversation in talks(policy, range(16)) for t in conversation]
    new = sum(len(t.tokens.prompt) for t in turns if t.tokens)
    assert policy.engine.counters.read <= new + len(turns)  # plus the last sampled token of each turn
    assert isinstance(policy.engine.kv_cache, BatchedKVCache)
    assert not policy.engine.kv_cache.contexts


def test_stop_texts_and_length() -> None:
    model = llama()
    free = LocalPolicy.of(model, TOKENIZER, SamplingOptions(max_tokens=40))
    first = asyncio.run(free.complete([user("hi")], key="a"))
    assert first.finish in ("stop", "length")
    text = first.message.content[5:7]
    bound = free.with_sampling(SamplingOptions(max_tokens=40, stop=(text,)))
    cut = asyncio.run(bound.complete([user("hi")], key="a"))
    assert cut.finish == "stop"
    assert cut.message.content.endswith(text)
    assert first.message.content.startswith(cut.message.content)


LETTERS = fresh_tokenizer(["ab cd"])
"""Every other character is several tokens, one a byte."""


@pytest.mark.parametrize("stop", ["END", "é", "\u4f60\u597d", "a\U0001f642", "b END", "\ufffd", "never"])
def test_a_stop_text_is_found_where_the_whole_text_first_has_it(stop: str) -> None:
    text = "ab cd ab\u4f60 \u597d \U0001f642a\u4f60\u597d EN b END é a\U0001f642 " * 2
    ids = LETTERS.encode(text, add_special_tokens=False)
    rng = random.Random(stop)
    for _ in range(20):  # whole characters, halves of them, and bytes that are none
        mixed = [rng.choice(ids) if rng.random() < 0.2 else token for token in ids]
        wanted = next((n for n in range(1, len(mixed) + 1) if stop in LETTERS.decode(mixed[:n])), None)
        search = StopTexts(LETTERS.decode, ["\0", stop])
        found = next((n for n in range(1, len(mixed) + 1) if search.found(mixed[:n])), None)
        assert found == wanted


@pytest.mark.parametrize("text", ["ab cd " * 200, "\u4f60\u597d" * 200, None])
def test_a_search_for_stop_texts_decodes_each_token_a_few_times(text: str | None) -> None:
    """None: bytes that never make a character."""
    half = LETTERS.encode("\u4f60", add_special_tokens=False)[1]
    ids = [half] * 1000 if text is None else LETTERS.encode(text, add_special_tokens=False)
    decoded = []

    def decode(some: Sequence[int]) -> str:
        decoded.append(len(some))
        return str(LETTERS.decode(some))

    search = StopTexts(decode, ["END"])
    assert not any(search.found(ids[:n]) for n in range(1, len(ids) + 1))
    assert sum(decoded) < (32 if text is None else 9) * len(ids)
    assert max(decoded) < 32


def test_the_engine_decodes_no_answer_again_for_stop_texts() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=200, stop=("never",)))
    decoded = []

    def decode(some: Sequence[int]) -> str:
        decoded.append(len(some))
        return str(TOKENIZER.decode(some))

    policy.engine.decode, policy.engine.end_ids = decode, frozenset()
    done = asyncio.run(policy.complete([user("hi")], key="a"))
    assert done.tokens is not None
    assert len(done.tokens.completion) == 200
    assert sum(decoded) < 12 * 200


def test_a_tokenizer_whose_words_change_the_text_before_them_is_decoded_whole() -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join("ab."[token] + " " for token in ids).replace(" .", ".")

    search = StopTexts(decode, ["b.", "a.."])
    assert [search.found([0, 1, 0, 2, 2][:n]) for n in range(1, 6)] == [False, False, False, False, True]


def test_a_context_that_does_not_fit_is_said_and_hurts_nobody_else() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=4))

    async def go() -> list[Any]:
        asked = [policy.complete([user(text)], key=text[:9]) for text in ("hi", "x " * 400, "ho")]
        return await asyncio.gather(*asked, return_exceptions=True)

    good, bad, fine = asyncio.run(go())
    assert isinstance(bad, ContextFull)
    assert "256" in str(bad)
    assert good.tokens
    assert fine.tokens


def test_cancelled_requests_leave_no_row_behind() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=200))

    async def go() -> None:
        asked = [asyncio.create_task(policy.complete([user("hi")], key=f"{n}")) for n in range(4)]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for n in range(4):
            policy.release(f"{n}")
        again = await policy.complete([user("ho")], key="later")
        assert again.tokens
        policy.release("later")

    asyncio.run(go())
    assert isinstance(policy.engine.kv_cache, BatchedKVCache)
    assert not policy.engine.kv_cache.contexts


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), ValueError("anything else"), KeyError("x")])
def test_a_pass_that_fails_fails_all_who_wait_for_it_and_nobody_later(error: Exception) -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=8))
    passes, broken = policy.engine.kv_cache.forward, []

    def breaks(contexts: Any) -> Any:
        if not broken:
            broken.append(len(contexts))
            raise error
        return passes(contexts)

    policy.engine.kv_cache.forward = breaks  # type: ignore[method-assign]

    async def go() -> list[Any]:
        asked = [policy.complete([user(text)], key=text) for text in ("hi", "ho")]
        first = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE)
        return [*first, await policy.complete([user("hi")], key="again")]

    *failed, fine = asyncio.run(go())
    assert all(isinstance(one, PolicyFailure) and "the local model failed" in str(one) for one in failed)
    assert fine.tokens


def template(text: str) -> Any:
    tokenizer = fresh_tokenizer(TEXTS * 20)
    tokenizer.chat_template = text
    return tokenizer


CHATML = (
    "{% for m in messages %}<|user|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)
COUNTING = CHATML.replace("{{ m['role'] }}", "{{ loop.index }} {{ m['role'] }}").replace(
    "<|user|>assistant", "<|user|>{{ messages|length + 1 }} assistant"
)
FORGETFUL = CHATML.replace(
    "{{ m['content'] }}",
    "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split('</think>')[-1] }}"
    "{% else %}{{ m['content'] }}{% endif %}",
)


@pytest.mark.parametrize("text", [CHATML, COUNTING])
@pytest.mark.parametrize("closed", [True, False])
def test_extending_by_ids_gives_what_the_template_would_write(text: str, closed: bool) -> None:
    renderer = Renderer(template(text))
    known = [user("hi"), renderer.parse_answer(renderer.render_answer(Message("assistant", "<move>2</move>")))]
    start = renderer.start(known[:1])
    said = renderer.render_answer(known[1]) if closed else renderer.render_answer(known[1])[:-1]
    more = renderer.extend(known, [user("go on")], closed=closed)
    assert more is not None
    assert (*start, *said, *more) == renderer.start([*known, user("go on")])


def test_a_template_that_rewrites_earlier_turns_is_detected_and_still_right() -> None:
    with pytest.warns(PrefixWarning, match="rewrites earlier turns"):
        policy = LocalPolicy.of(llama(), template(FORGETFUL), SamplingOptions(max_tokens=5))
    messages = [user("hi"), Message("assistant", "<think>hm</think> ho"), user("go on")]
    assert policy.renderer.extend(messages[:2], messages[2:], closed=True) is None
    for turns in talks(policy, range(6)):
        for turn in turns:
            assert turn.tokens is not None
            assert turn.tokens.offset == 0 or "</think>" not in turn.message.content


def test_kept_thoughts_are_read_on_with_their_own_probabilities() -> None:
    model = llama()
    with pytest.warns(PrefixWarning, match="stay in the context"):
        policy = LocalPolicy.of(
            model, template(FORGETFUL), SamplingOptions(max_tokens=6), rendering=Rendering(keeps_answers=True)
        )
    messages = [user("hi")]

    async def go() -> list[Completion]:
        out = [policy.force_answer(messages, Message("assistant", "<think>hm</think> ho"), key="k")]
        for text in ("go on", "and now?"):
            messages.extend([out[-1].message, user(text)])
            out.append(await policy.complete(messages, key="k"))
        return out

    *_, (start, ids, logprobs) = sequence(asyncio.run(go()))
    assert "<think>hm</think> ho" in TOKENIZER.decode(ids)
    with torch.no_grad():
        plain = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    assert [float(plain[n - 1, ids[n]]) for n in range(start, len(ids))] == pytest.approx(logprobs, abs=1e-4)


def test_runs_keep_answers_unless_they_are_told_otherwise() -> None:
    kept, afresh = TrainConfig(), TrainConfig(earlier_answers="template")
    assert [
        Replica(toys.fresh(0), toys.TOKENIZER, toys.Twice(), config=c).policy.renderer.rendering.keeps_answers
        for c in (kept, afresh)
    ] == [True, False]
    assert afresh.as_dict()["earlier_answers"] == "template"


def test_given_words_become_part_of_the_conversation() -> None:
    model = llama()
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(temperature=0, max_tokens=6))
    messages = [system("You are X."), user("You start.\n012\n345\n678")]

    async def go() -> tuple[Completion, Completion]:
        first = policy.force_answer(messages, Message("assistant", "<think>block</think><move>2</move>"), key="k")
        more = [*messages, first.message, user("O plays 4.\nX12\n3O5\n678")]
        second = await policy.complete(more, key="k")
        policy.release("k")
        return first, second

    first, second = asyncio.run(go())
    assert first.finish == "not_sampled"
    (_, _, certain), (start, ids, _) = sequence([first, second])
    assert set(certain) == {0.0}
    prompt = torch.tensor([ids[:start]])
    said = model.generate(prompt, max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(prompt))
    assert said[0, start:].tolist() == ids[start:]


def test_explorers_begin_each_with_another_suggestion_and_the_others_do_not() -> None:
    policy = LocalPolicy.of(llama(), TOKENIZER, SamplingOptions(max_tokens=6))

    def suggest(messages: Sequence[Message], rng: random.Random, nth: int) -> str:
        return f"<move>{(rng.randrange(9) + nth) % 9}</move>"

    explorer = ExploringStarts(policy, suggest, first=2)
    messages = [user("You start.\n012\n345\n678")]

    async def go() -> list[Completion]:
        keys = [f"task/0/{sibling}/agent" for sibling in range(4)]
        done = [await explorer.complete(messages, key=key) for key in keys]
        for key in keys:
            explorer.release(key)
        return done

    done = asyncio.run(go())
    assert "not_sampled" not in [answer.finish for answer in done[:2]]
    assert [answer.finish for answer in done[2:]] == ["not_sampled", "not_sampled"]
    assert done[2].message != done[3].message
    assert asyncio.run(go())[2].message == done[2].message


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_guesses_change_the_number_of_passes_and_nothing_else(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = SamplingOptions(temperature=temperature, max_tokens=9)

    def play() -> tuple[list[list[Completion]], int]:
        policy = LocalPolicy.of(repetitive(), TOKENIZER, sampling)
        said = [*talks(policy, range(12)), *talks(policy, range(12), key="again")]
        return said, policy.engine.counters.passes

    guessed, fewer = play()
    monkeypatch.setattr("wanderlust.policies.local.inference_engine.MAX_DRAFT_TOKENS", 0)
    plain, passes = play()
    for ours, theirs in zip(guessed, plain, strict=True):
        assert [ids for _, ids, _ in sequence(ours)] == [ids for _, ids, _ in sequence(theirs)]
        for (_, _, found), (_, _, wanted) in zip(sequence(ours), sequence(theirs), strict=True):
            assert found == pytest.approx(wanted, abs=1e-5)
    assert fewer < passes


def test_guesses_say_what_mostly_came_next() -> None:
    drafts = NGramSpeculator()
    assert drafts.propose([1, 2, 3], 9) == ()
    for _ in range(3):
        drafts.learn([0, 1, 2, 3, 4, 5], 6)
    assert drafts.propose([0, 1, 2], 9) == (3, 4, 5)
    assert drafts.propose([0, 1, 2], 2) == (3, 4)
    for _ in range(9):
        drafts.learn([1, 2, 3, 7], 1)
    assert drafts.propose([0, 1, 2], 9) == (3, 7)


def test_guesses_take_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderlust.policies.local.inference_engine.MAX_NGRAM_ENTRIES", 10)
    drafts = NGramSpeculator()
    for start in range(0, 1000, 5):
        drafts.learn(range(start, start + 8), 5)
        assert len(drafts.votes) < 10 + 5
