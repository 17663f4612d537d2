"""One conversation is the same ids wherever it is rendered: sampled, imitated, stored, exported, trained on."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest

import templates
from wanderlust.agent import Agent
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.openai_types import message_to_template, tool_to_wire
from wanderlust.policies.base import OnTokens, SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import PrefixWarning, Renderer, Rendering, ToolsWarning
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.tool_formats.tagged_json import TEXT_CALLS, call_id
from wanderlust.store.formats import conversations
from wanderlust.store.records import pack, pack_tokens, unpack
from wanderlust.training.batch.samples import Sample, imitation_samples, to_samples, values_by_turn
from wanderlust.training.conversations import conversation_samples, parse_row
from wanderlust.training.tiny_model import fresh_tokenizer
from wanderlust.types import (
    DeclaredTool,
    Message,
    Rollout,
    Score,
    Task,
    ToolCall,
    Trajectory,
    assistant,
    system,
    tool_message,
    user,
)

UNKNOWN = templates.HERMES.replace("<tool_call>", "<invoke>").replace("</tool_call>", "</invoke>")
"""Tools and calls in a form that no pattern knows."""
NO_SYSTEM = templates.PLAIN.replace(
    "{% for m in messages %}",
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system message') }}{% endif %}",
    1,
)
NAMES = ("HERMES", "TAGGED", "THINKING", "REASONER", "LLAMA", "MISTRAL", "MISTRAL_NAMED", "LFM", "LFM_SILENT", "PLAIN")
TEMPLATES = {name: getattr(templates, name) for name in NAMES} | {
    "unknown": UNKNOWN,
    "no system": NO_SYSTEM,
    "fresh": "",
}
WORDS = ("tea", "rain ", " long", "\n", "ü", "漢字", "<|im_end|>", "</s>", "[INST]", "<tool_call>", "12", "{}", "Well.")


@cache
def tokenizer(name: str) -> Any:
    if name == "fresh":
        tools = [DeclaredTool(name="look", description="Look.", schema=SCHEMA)]
        return fresh_tokenizer(["hello world"] * 3, tools=tools)
    return templates.tokenizer_with(TEMPLATES[name])


@cache
def renderer(name: str, *, keeps: bool) -> Renderer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefixWarning)
        return Renderer(tokenizer(name), Rendering(keeps_answers=keeps))


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "object"}},
}
TOOLSETS: tuple[tuple[DeclaredTool, ...], ...] = (
    (),
    (DeclaredTool(name="look", description="Look around.", schema=SCHEMA),),
    (DeclaredTool(name="look", description="Look, <|im_end|> and see.", schema=SCHEMA),),
    (
        DeclaredTool(name="look", description="Look around.", schema=SCHEMA),
        DeclaredTool(name="clock", description="", schema={"type": "object", "properties": {}}),
    ),
)


@dataclass(frozen=True)
class Script:
    """What is shown at each turn, what is offered, and what is answered."""

    turns: list[tuple[tuple[Message, ...], tuple[DeclaredTool, ...], Message]]


def text(rng: Random, most: int = 4) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def plain(rng: Random) -> str:
    """An answer that no format reads as a call, and that begins and ends with a letter."""
    return " ".join(rng.choice(("tea", "ü", "12", "rain,", "well")) for _ in range(rng.randint(1, 4))) + "."


def script(rng: Random) -> Script:
    turns: list[Any] = []
    offered = rng.choice(TOOLSETS)
    pending: tuple[ToolCall, ...] = ()
    for number in range(rng.randint(1, 4)):
        if rng.random() < 0.15:
            offered = rng.choice(TOOLSETS)
        shown = [tool_message(text(rng), call) for call in pending] or [user(text(rng))]
        if not number and rng.random() < 0.3:
            shown = [system(plain(rng)), *shown]
        answer = plain(rng)
        if rng.random() < 0.2:
            answer = f"<think>{plain(rng)}</think>\n\n{answer}"
        pending = ()
        if offered and rng.random() < 0.6:
            before = sum(len(messages) + 1 for messages, _, _ in turns) + len(shown)
            pending = tuple(call(rng, offered, before, n) for n in range(rng.choice((1, 1, 1, 2))))
            answer = rng.choice(("", answer))
        turns.append((tuple(shown), offered, assistant(answer, *pending)))
    return Script(turns)


def call(rng: Random, offered: Sequence[DeclaredTool], turn: int, number: int) -> ToolCall:
    tool = rng.choice(offered)
    arguments: dict[str, Any] = {}
    if tool.schema["properties"]:
        arguments = {"place": plain(rng), "n": rng.randint(0, 99)}
        if rng.random() < 0.3:
            arguments["deep"] = {"a": [1, True, None, plain(rng)]}
    return ToolCall(id=call_id(turn, number), name=tool.name, arguments=json.dumps(arguments, ensure_ascii=False))


class Saying:
    """A sampler that says the answers of a script, spelt as their renderer spells them."""

    def __init__(self, renderer: Renderer, script: Script):
        self.renderer, self.script, self.said = renderer, script, list[Message]()
        self.context: list[Message] = []

    async def sample(
        self,
        prompt: Sequence[int],
        sampling: SamplingOptions,
        *,
        key: int,
        session: str = "",
        on_tokens: OnTokens | None = None,
    ) -> SampledTokens:
        shown, offered, answer = self.script.turns[len(self.said)]
        self.context += shown
        ids = self.renderer.render_answer(answer, self.context, offered)
        self.said.append(answer)
        self.context.append(answer)
        return SampledTokens(ids=ids, logprobs=(0.0,) * len(ids), finish="stop")

    def release(self, session: str) -> None: ...


def played(script: Script, renderer: Renderer) -> Trajectory:
    """The script as a policy of token ids plays it; what it says is put back into the script's own words."""
    policy = TokenPolicy(Saying(renderer, script), renderer)
    agent = Agent(policy, key="k")

    async def go() -> None:
        for shown, offered, answer in script.turns:
            said = await agent.act(*shown, tools=offered)
            known = [(c.name, json.loads(c.arguments)) for c in said.tool_calls]
            assert known == [(c.name, json.loads(c.arguments)) for c in answer.tool_calls]

    asyncio.run(go())
    return agent.trajectory


def rows(samples: Sequence[Sample]) -> list[tuple[list[int], list[bool]]]:
    """Ids and mask, without what follows the last trained id."""
    out = []
    for sample in samples:
        end = max((place + 1 for place, on in enumerate(sample.mask) if on), default=0)
        out.append((list(sample.ids[:end]), [bool(on) for on in sample.mask[:end]]))
    return out


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.proof("seeds"))])
@pytest.mark.filterwarnings("ignore::wanderlust.policies.chat_template.ToolsWarning")
def test_a_conversation_is_the_same_ids_everywhere(name: str, count: int) -> None:
    seen = Counter[str]()
    for seed in range(count):
        for keeps in (False, True):
            made = script(Random(f"{name}/{seed}"))
            own = renderer(name, keeps=keeps)
            try:
                trajectory = played(made, own)
            except PolicyFailure:  # the template refuses it, or cannot write an answer of it
                seen["refused"] += 1
                continue
            seen["played"] += 1
            trajectory.advantage, trajectory.score = 1.0, Score(reward=1.0)
            samples = to_samples(trajectory)
            sampled = rows(samples)
            rollout = Rollout(task=Task(id="t"), seed=0, trajectories=[trajectory])
            stored = unpack(pack(rollout), pack_tokens(rollout)).trajectory
            assert [turn.tools for turn in stored.turns] == [offered for _, offered, _ in made.turns]
            without = replace(stored, turns=[replace(turn, tokens=None) for turn in stored.turns])
            assert rows(imitation_samples(without, own)) == sampled
            exported = [json.loads(json.dumps(row)) for row in conversations(rollout)]
            trained = [
                sample
                for number, row in enumerate(exported)
                for one in parse_row(f"row {number}", row, "sft").conversations
                for sample in conversation_samples(one, own)
            ]
            if len(exported) == 1:
                assert rows(trained) == sampled
                _agrees_with_the_template(name, made, own, sampled, seen)
            else:
                seen["tools changed"] += 1
                by_turn = values_by_turn(samples, [[float(id) for id in sample.ids] for sample in samples])
                assert _trained(rows(trained)) == [id for turn in by_turn for id in turn]
    assert seen["played"] > count, seen
    if name not in ("MISTRAL", "MISTRAL_NAMED"):  # they refuse most of these conversations
        assert seen["tools changed"], seen
        assert seen["as the template"] or name in ("THINKING", "REASONER"), seen


def _trained(rows: Sequence[tuple[list[int], list[bool]]]) -> list[int]:
    return [id for ids, mask in rows for id, on in zip(ids, mask, strict=True) if on]


def _agrees_with_the_template(
    name: str, made: Script, own: Renderer, sampled: list[tuple[list[int], list[bool]]], seen: Counter[str]
) -> None:
    """Where the template only appends and nothing spells a special token: the text is what `transformers` renders."""
    messages = [message for shown, _, answer in made.turns for message in (*shown, answer)]
    tools = next((offered for _, offered, _ in reversed(made.turns) if offered), ())
    specials = own.tokenizer.all_special_tokens + list(own.tokenizer.get_added_vocab())
    spelt = [m.content for m in messages if m.role != "assistant"] + [tool.description for tool in tools]
    if (
        not own.appends
        or (own.tool_call_format is TEXT_CALLS and tools)
        or len(sampled) > 1
        or name.startswith("MISTRAL")
    ):
        return
    calls = max((len(message.tool_calls) for message in messages), default=0)
    if calls > {"LFM_SILENT": 0, "LLAMA": 1}.get(name, 2):  # what the template does not write itself
        return
    if any(special in one for special in specials for one in spelt) or made.turns[0][1] != tools:
        return
    wire = [message_to_template(message) for message in messages]
    whole = own.tokenizer.apply_chat_template(wire, tools=[tool_to_wire(t) for t in tools] or None, tokenize=False)
    assert whole.startswith(own.tokenizer.decode(sampled[0][0])), (name, whole)
    seen["as the template"] += 1


def test_a_tool_of_the_same_name_with_another_description_is_told_to_the_model() -> None:
    own = renderer("HERMES", keeps=False)
    old, new = (DeclaredTool(name="look", description=text, schema=SCHEMA) for text in ("OLDTEXT", "NEWTEXT"))
    made = Script([((user("a"),), (old,), assistant("b")), ((user("c"),), (new,), assistant("d"))])
    first, second = (turn.tokens for turn in played(made, own).turns)
    assert first is not None
    assert second is not None
    assert second.offset == 0
    shown = own.tokenizer.decode(second.prompt)
    assert "NEWTEXT" in shown
    assert "OLDTEXT" not in shown


@pytest.mark.parametrize("name", ["HERMES", "PLAIN", "fresh"])
def test_a_tool_spells_no_special_token(name: str) -> None:
    own = renderer(name, keeps=False)
    end = own.tokenizer.eos_token
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": f"x{end}y", "enum": [end]}}}
    tool, other = (DeclaredTool(name="look", description=f"a{mark}b", schema=schema) for mark in (end, "-"))
    harmless = DeclaredTool(name="look", description="a-b", schema={"type": "object", "properties": {"a": {}}})
    count = own.start([user("x")], [harmless]).count(own.tokenizer.eos_token_id)
    for one in (tool, other):
        assert own.start([user("x")], [one]).count(own.tokenizer.eos_token_id) == count
    assert f"a{end}b" in own.tokenizer.decode(own.start([user("x")], [tool]))


def test_a_call_that_would_be_lost_is_refused_with_the_way_out() -> None:
    own = renderer("fresh", keeps=False)
    odd = assistant("", ToolCall(id="1", name="look", arguments='{"no name": 1}'))
    with pytest.raises(PolicyFailure, match="--tool-calls text"):
        own.render_answer(odd, [user("x")], TOOLSETS[1])
    as_text = Renderer(own.tokenizer, Rendering(text_calls=True))
    ids = as_text.render_answer(odd, [user("x")], TOOLSETS[1])
    assert json.loads(as_text.parse_answer(ids, TOOLSETS[1]).tool_calls[0].arguments) == {"no name": 1}
    row = {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<tool_call>{}</tool_call>"}]
    }
    row["tools"] = [tool_to_wire(tool) for tool in TOOLSETS[1]]
    with pytest.raises(UsageError, match="row 7: an answer with the calls"):
        conversation_samples(parse_row("row 7", row, "sft").conversations[0], renderer("HERMES", keeps=False))


def test_how_a_checkpoint_renders_is_kept_with_it(tmp_path: Any) -> None:
    from transformers import AutoTokenizer

    made = templates.tokenizer_with(templates.HERMES)
    Rendering(keeps_answers=True, text_calls=True).set(made)
    made.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert Renderer(loaded).rendering == Rendering(keeps_answers=True, text_calls=True)
    assert Renderer(loaded).tool_call_format is TEXT_CALLS
    assert Renderer(templates.tokenizer_with(templates.HERMES)).rendering == Rendering()


def test_an_unknown_form_of_calls_is_said() -> None:
    with pytest.warns(ToolsWarning, match="not known here"):
        Renderer(tokenizer("unknown")).start([user("x")], TOOLSETS[1])
