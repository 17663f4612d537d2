"""Probes: degenerate policies, the view of the conversation that they answer to, and answers in the requested form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TypeAlias

from wanderlust.types import Completion, Message, Tool, assistant

MAX_PROMPT_CHARS = 20_000
"""Characters of the prompt that a probe reads."""
MAX_OPTIONS = 64
"""Most options taken from a prompt."""

_TAG = re.compile(r"<([A-Za-z][\w-]{0,30})>")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)")
_LETTERED = re.compile(r"^[ \t]*[(\[]?([A-J])[)\].:][ \t]+(\S.{0,200})$", re.MULTILINE)
_LISTED = re.compile(r"^[ \t]*(?:[-*\u2022]|\d{1,2}[.)])[ \t]+(\S.{0,200})$", re.MULTILINE)
_QUOTED = re.compile(r"[\"'\u201c\u2018`]([^\"'\u201d\u2019`\n]{1,60})[\"'\u201d\u2019`]")
_SERIES = re.compile(r"[^\s,;:.!?()][^,;:.!?()\n]{0,40}(?:,[ ]?[^,;:.!?()\n]{1,40})+")
_THINKING = frozenset({"think", "thinking", "thought", "reasoning", "reason", "scratchpad"})
_BETWEEN = re.compile(r",[ ]?(?:and |or )?| or | and |/")


@dataclass(frozen=True)
class ProbeView:
    """The conversation at one turn of a probe."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    random: Random
    """Keyed by the episode and the turn."""

    @property
    def turn(self) -> int:
        """Number of earlier answers."""
        return sum(message.role == "assistant" for message in self.messages)

    @cached_property
    def prompt(self) -> str:
        """The messages before the first answer, the instructions included."""
        texts = []
        for message in self.messages:
            if message.role == "assistant":
                break
            texts.append(message.content)
        return "\n".join(texts)[:MAX_PROMPT_CHARS]

    @cached_property
    def question(self) -> str:
        """The first message of the user."""
        return next((m.content for m in self.messages if m.role == "user"), self.prompt)[:MAX_PROMPT_CHARS]

    @property
    def newest(self) -> str:
        """The last message."""
        return self.messages[-1].content[:MAX_PROMPT_CHARS] if self.messages else ""

    @cached_property
    def everything(self) -> str:
        """The prompt, the last message and the descriptions of all tools."""
        tool_texts = (f"{tool.name}: {tool.description}" for tool in self.tools)
        return "\n".join((self.prompt, self.newest, *tool_texts))

    @cached_property
    def words(self) -> list[str]:
        """Every different word of the question, in order."""
        return list(dict.fromkeys(re.findall(r"[^\W_][\w'-]*", self.question)))

    @cached_property
    def numbers(self) -> list[str]:
        """Every number of the question, in order."""
        return _NUMBER.findall(self.question)

    @cached_property
    def options(self) -> list[str]:
        """The answers that the question offers: lettered, listed, quoted or in a series; empty where it offers none."""
        options: list[str] = []
        for pattern in (_LETTERED, _LISTED, _QUOTED):
            for match in pattern.finditer(self.question):
                options += (group.strip() for group in match.groups())
        for match in _SERIES.finditer(self.question):
            options += (item.strip() for item in _BETWEEN.split(match[0]))
        return [option for option in dict.fromkeys(options) if option][:MAX_OPTIONS]

    @cached_property
    def tags(self) -> list[str]:
        """Names of the tags that the prompt writes, in order, those for reasoning left out."""
        return [tag for tag in dict.fromkeys(_TAG.findall(self.prompt)) if tag.lower() not in _THINKING]

    @cached_property
    def reasoning_tags(self) -> list[str]:
        """Names of the tags for reasoning."""
        return [tag for tag in dict.fromkeys(_TAG.findall(self.prompt)) if tag.lower() in _THINKING]

    @property
    def reasoning(self) -> str:
        """A text in the form of the requested reasoning; empty where none is requested."""
        return "".join(f"<{tag}>I thought about it.</{tag}>\n" for tag in self.reasoning_tags)

    def formatted(self, answer: str) -> str:
        """The answer in the form that the prompt asks for: in its tags, in a box, after `Answer:`; else bare."""
        return self.reasoning + "\n".join(self._forms(answer))

    def _forms(self, answer: str) -> Iterator[str]:
        prompt = self.prompt
        if self.tags:
            for tag in self.tags:
                example = re.search(rf"<{re.escape(tag)}>([^<]*)</{re.escape(tag)}>", prompt)
                bracketed = example is not None and example[1].strip().startswith("[")
                yield f"<{tag}>[{answer}]</{tag}>" if bracketed else f"<{tag}>{answer}</{tag}>"
        elif "\\boxed" in prompt:
            yield f"\\boxed{{{answer}}}"
        elif (marker := re.search(r"(?i)\b(?:final )?answer:", prompt)) is not None:
            yield f"{marker[0]} {answer}"
        elif "####" in prompt:
            yield f"#### {answer}"
        else:
            yield answer


ProbeAnswer: TypeAlias = Callable[[ProbeView], str | Message | None]
"""The answer of a probe; None where it does not fit, for example without tools."""

IGNORANT = "ignorant"
"""The kind of the probes that measure the reward of chance."""


class ProbeDoesNotFit(Exception):
    """The probe does not fit this environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A policy that deserves no reward.

    It is a `Policy` itself and keeps nothing between turns, so one object plays all episodes at once.
    """

    name: str
    description: str
    """Its behaviour, in a few words."""
    answer: ProbeAnswer
    kind: str = "words"
    """`words`, `judge`, `code`, `tools`, or IGNORANT."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The probe's answer. Raises ProbeDoesNotFit where it has none."""
        answer = self.answer(ProbeView(messages, tools, Random(f"{key}/{len(messages)}")))
        if answer is None:
            raise ProbeDoesNotFit(self.name)
        return Completion(message=answer if isinstance(answer, Message) else assistant(answer))


def always_answer(text: str) -> ProbeAnswer:
    """The same text whatever the question, bare."""
    return lambda _: text


def constant_answer(answer: str) -> ProbeAnswer:
    """The same answer whatever the question, in the requested form."""
    return lambda view: view.formatted(answer)


def text_probe(name: str, description: str, answer: ProbeAnswer) -> Probe:
    """A probe that writes, and uses no tools."""
    return Probe(name=name, description=description, answer=answer)
