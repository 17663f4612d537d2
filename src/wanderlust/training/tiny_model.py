"""A small language model from nothing: a tokenizer trained on some texts and a Llama with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from wanderlust.policies.tool_formats.tagged_json import LFM_MARKS
from wanderlust.types import Message, Tool

PAD_TOKEN, END_TOKEN = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")

WORD_PATTERN = r"</?[a-z_]+>| ?[a-z]+ ?|[A-Z]|\p{N}|\.?\n|\s|."
"""Tags and lower-case words are whole; digits and capital letters stand alone, so that a cell is a token."""

TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

LIST_MARKS = ("<|tool_list_start|>", "<|tool_list_end|>")
TINY_TOOL_TEMPLATE = (
    "{% if tools %}<|tool_list_start|>{% for tool in tools %}{{ tool.function.name }}("
    "{% if tool.function.parameters.properties %}{% for name, one in tool.function.parameters.properties.items() %}"
    "{{ name }}: {{ one.type if one.type is string else 'any' }}"
    "{% if one.enum %} {{ one.enum | tojson }}{% endif %}"
    "{% if one.description %} {{ one.description }}{% endif %}{{ '' if loop.last else ', ' }}{% endfor %}{% endif %}) "
    "{{ tool.function.description }}\n{% endfor %}<|tool_list_end|>{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if message.tool_calls %}<|tool_call_start|>[{% for call in message.tool_calls %}{{ call.function.name }}("
    "{% for name, value in call.function.arguments.items() %}{{ name }}={{ value | tojson }}"
    "{{ '' if loop.last else ', ' }}{% endfor %}){{ '' if loop.last else ', ' }}{% endfor %}]<|tool_call_end|>"
    "{% endif %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The same with tools: each in a line, calls as LFM2 writes them, which takes the fewest tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Size of a fresh Llama (RMSNorm, rotary positions, SwiGLU, tied embeddings)."""

    width: int = 64
    layers: int = 3
    heads: int = 4
    inner: int = 192
    """Width inside the feed-forward layers."""
    positions: int = 512
    """Longest context in tokens."""
    theta: float = 10_000.0
    """Base of the rotary positions; small ones suit short contexts."""
    spread: float = 0.02
    """Standard deviation of the fresh embeddings."""


def tokenizer_of(messages: Iterable[Message], tools: Iterable[Tool], *, size: int) -> Any:
    """A fresh tokenizer for these conversations, in which these tools were offered."""
    messages = list(messages)
    words = [f"{call.name} {call.arguments}" for message in messages for call in message.tool_calls]
    return fresh_tokenizer([*(message.content for message in messages), *words], size=size, tools=tools)


def fresh_tokenizer(texts: Iterable[str], *, size: int = 1024, tools: Iterable[Tool] = ()) -> Any:
    """A byte-level BPE tokenizer whose common words are one token and which can write any text at all.

    One special token per role opens a message and `<|end|>` closes it; where users or tools spell them, `Renderer` sees
    to it that they stay text. With `tools` its template writes tools and calls, and their words are tokens, too.
    """
    told = {str((one.name, one.description, one.schema)): one for one in tools}
    special = [PAD_TOKEN, *(f"<|{role}|>" for role in ROLES), END_TOKEN]
    if told:
        special += [*LIST_MARKS, *LFM_MARKS]
        schemas = [json.dumps(one.schema, ensure_ascii=False) for one in told.values()]
        texts = [*texts, *(f"{one.name} {one.description} {s}" for one, s in zip(told.values(), schemas, strict=True))]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END_TOKEN,
        pad_token=PAD_TOKEN,
        chat_template=TINY_TOOL_TEMPLATE if told else TINY_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def fresh_model(tokenizer: Any, shape: ModelShape, *, seed: int) -> Any:
    """A Llama with random weights that depend on `seed` alone; the global generator is left as it was."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        model.eval()  # type: ignore[no-untyped-call]
        _spread(model, shape)
    return model


@torch.no_grad()
def _spread(model: Any, shape: ModelShape) -> None:
    """Weights of unit gain: the usual 0.02 is right for wide models and leaves narrow ones deaf."""
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            continue
        if "embed" in name:
            weight.normal_(std=shape.spread)
            continue
        inward = name.endswith(("o_proj.weight", "down_proj.weight"))  # what is added to the residual stream
        weight.normal_(std=weight.shape[1] ** -0.5 * ((2 * shape.layers) ** -0.5 if inward else 1.0))
