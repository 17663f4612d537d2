"""Chat templates of the common kinds, in our own words, and a tokenizer that knows their marks."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

from wanderlust.policies.base import OnTokens, SampledTokens, SamplingOptions
from wanderlust.training.tiny_model import fresh_tokenizer

_MARKS = [
    *("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|python_tag|>"),
    *("<|tool_call_start|>", "<|tool_call_end|>", "[TOOL_CALLS]", "[ARGS]", "[INST]", "[/INST]"),
]

_TOOLS = "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
_RESULTS = (
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\\n' }}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
)
_CALLS = (
    "{% for c in m.tool_calls %}{{ '\\n' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
)
_ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

HERMES = (
    _TOOLS + "{% for m in messages %}{% if m.role == 'tool' %}" + _RESULTS + "{% elif m.tool_calls %}"
    "<|im_start|>assistant\n{{ m.content }}" + _CALLS + "<|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}" + _ASKS
)
"""Calls in tags; results of one message share a turn of the user's, as with Qwen 2.5."""

TAGGED = HERMES.replace(
    _CALLS,
    "{% for c in m.tool_calls %}{{ '\\n' }}<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson }}{{ '\\n' }}</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}",
)
"""Calls in tags of their own, as with Qwen 3.5."""

THINKING = HERMES.replace("{% for m in messages %}", "{% set ns = namespace(last=-1) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}").replace(
    "{{ m.content }}" + _CALLS,
    "{{ m.content if loop.index0 > ns.last else m.content.split('</think>')[-1] }}" + _CALLS,
).replace(
    "<|im_start|>{{ m.role }}\n{{ m.content }}",
    "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.index0 > ns.last and '</think>' not in m.content %}"
    "<think>\n\n</think>\n\n{% endif %}{{ m.content if loop.index0 > ns.last else m.content.split('</think>')[-1] }}",
)  # fmt: skip
"""The same, but thoughts are dropped once the user speaks again, and an answer without any is given an empty one."""

REASONER = (
    HERMES.replace("{{ m.content }}" + _CALLS, "{{ m.content.split('</think>')[-1] }}" + _CALLS)
    .replace(
        "<|im_start|>{{ m.role }}\n{{ m.content }}",
        "<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}",
    )
    .replace(_ASKS, _ASKS.replace("assistant\n", "assistant\n<think>\n"))
)
"""The same, but thoughts are dropped from every answer, and the prompt begins one, as with DeepSeek-R1."""

LLAMA = (
    "{% for m in messages %}{% if m.tool_calls %}"
    "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{% set c = m.tool_calls[0].function %}assistant\n\n"
    '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}<|eot_id|>'
    "{% elif m.role == 'tool' %}ipython\n\n{{ m.content | tojson }}<|eot_id|>"
    "{% else %}{{ m.role }}\n\n{% if tools and loop.first %}{{ tools | tojson }}\n{% endif %}"
    "{{ m.content | trim }}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}assistant\n\n{% endif %}"
)
"""A bare JSON object, alone in its message."""

_MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}{% if tools and loop.last %}{{ tools | tojson }}{% endif %}"
    "[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}CALLS</s>{% elif m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    '[TOOL_RESULTS]{"content": {{ m.content | tojson }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
MISTRAL = _MISTRAL.replace(
    "CALLS",
    "{{ m.content }}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]",
)
"""A JSON list after a mark; the tools stand before the last question, so that earlier turns are rewritten."""

MISTRAL_NAMED = _MISTRAL.replace(
    "CALLS",
    "{{ m.content }}{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
    "{{ c.function.arguments | tojson }}{% endfor %}",
)
"""A mark, a name and a JSON object for each call."""

_LFM = (
    "<|im_start|>{{ m.role }}\n{% if m.role == 'tool' %}<|tool_response_start|>{{ m.content }}<|tool_response_end|>"
    "{% else %}{{ m.content }}{% endif %}CALLS<|im_end|>\n"
)
LFM = (
    _TOOLS.replace("{% for", "<|tool_list_start|>{% for") + "{% for m in messages %}"
    + _LFM.replace(
        "CALLS",
        "{% if m.tool_calls %}<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}("
        "{% for k, v in c.function.arguments.items() %}{{ k }}="
        "{% if v is string %}'{{ v }}'{% else %}{{ v | tojson }}{% endif %}"
        "{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]"
        "<|tool_call_end|>{% endif %}",
    )
    + "{% endfor %}" + _ASKS
)  # fmt: skip
"""Python calls between marks."""

LFM_SILENT = (
    _TOOLS.replace("{% for", "<|tool_list_start|>{% for") + "{% for m in messages %}" + _LFM.replace("CALLS", "")
    + "{% endfor %}" + _ASKS
)  # fmt: skip
"""LFM2's first: tools are listed, and calls have to be in the text."""

PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + _ASKS
"""Nothing about tools at all."""


@cache
def _tokenizer() -> Any:
    made = fresh_tokenizer(["hello world"] * 3)
    made.add_tokens(_MARKS, special_tokens=True)
    return made


def tokenizer_with(template: str) -> Any:
    """A small tokenizer with the marks of all templates and the end of turn that this one writes."""
    made = copy.deepcopy(_tokenizer())
    made.eos_token = next(end for end in ("<|im_end|>", "<|eot_id|>", "</s>") if end in template)
    made.bos_token = made.eos_token
    made.chat_template = template
    return made


class Says:
    """A sampler that says given texts, one id at a time."""

    def __init__(self, *texts: str, tokenizer: Any):
        self.texts, self.tokenizer, self.prompts, self.released = list(texts), tokenizer, [], []

    async def sample(
        self,
        prompt: Sequence[int],
        sampling: SamplingOptions,
        *,
        key: int,
        session: str = "",
        on_tokens: OnTokens | None = None,
    ) -> SampledTokens:
        self.prompts.append((tuple(prompt), session))
        ids = (*self.tokenizer.encode(self.texts.pop(0), add_special_tokens=False), self.tokenizer.eos_token_id)
        logprobs = tuple(-n / 8 for n in range(len(ids)))
        for end in range(1, len(ids) + 1):
            if on_tokens is not None:
                on_tokens(ids[:end], logprobs[:end])
                await asyncio.sleep(0)
        return SampledTokens(ids=ids, logprobs=logprobs, finish="stop")

    def release(self, session: str) -> None:
        self.released.append(session)
