"""Probes: degenerate policies, the view of the conversation that they answer to, and answers in the requested form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
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
_NAMED_TAG = re.compile(
    r"(?i)\b(?:in|inside|within|between|with|use)\s+(?:the\s+|an?\s+)?[\"'`]?([A-Za-z]\w{0,30})[\"'`]?\s+tags?\b"
)
_THINKING = frozenset({"think", "thinking", "thought", "reasoning", "reason", "scratchpad"})
_MARK = re.compile(r"(?i)\b(?:final )?answer:")
_BETWEEN = re.compile(r",[ ]?(?:and |or )?| or | and |/")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What right answers have around their content, learnt from some of them.

    Example:
        >>> learn_form(["<move>4</move>", "<move>7</move>"]).write("no")
        '<move>no</move>'
    """

    before: str
    after: str
    contents: tuple[str, ...]
    """The different contents of the answers that it was learnt from."""
    structured: bool
    """Whether the content stands in a tag, a box or a field."""

    def write(self, content: str) -> str:
        """An answer of this form."""
        return f"{self.before}{content}{self.after}"

    def matches(self, text: str) -> bool:
        """Whether a text has the form, and a content of the kind of those that are known."""
        text = _without_reasoning(text)
        if not (text.startswith(self.before.strip()) and text.endswith(self.after.strip())):
            return False
        content = text[len(self.before.strip()) : len(text) - len(self.after.strip())]
        return _kind(content) in {_kind(known) for known in self.contents}


def learn_form(answers: Sequence[str]) -> AnswerForm | None:
    """The form that the answers have in common; None for programs, and where there are none.

    A single answer shows its form by a tag, a box, a field or a marker alone.
    """
    texts = list(dict.fromkeys(_without_reasoning(answer) for answer in answers if answer.strip()))
    if not texts or any("```" in text for text in texts):
        return None
    for pattern in (_LAST_TAG, _BOX, _FIELD, _MARKED):
        matches = [pattern.fullmatch(text) for text in texts]
        found = [match for match in matches if match is not None]
        if len(found) == len(texts) and len({(match[1], match[3]) for match in found}) == 1:
            contents = tuple(dict.fromkeys(match[2].strip() for match in found))
            return AnswerForm(before=found[0][1], after=found[0][3], contents=contents, structured=True)
    before, after = _shared_start(texts), _shared_start([text[::-1] for text in texts])[::-1]
    if len(texts) == 1 or len(before) + len(after) >= min(map(len, texts)):
        before = after = ""
    if not (before and after):  # a bracket that all answers begin with belongs to them
        before, after = (one if re.search(r"\w", one) else "" for one in (before, after))
    contents = tuple(text[len(before) : len(text) - len(after)] for text in texts)
    return AnswerForm(before=before, after=after, contents=contents, structured=False)


_LAST_TAG = re.compile(r"(<[A-Za-z][\w-]*>\s*)([^<]*?)(\s*</[A-Za-z][\w-]*>)")
_BOX = re.compile(r"(\\boxed\{)((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)(\})")
_FIELD = re.compile(r"(\{\s*\"\w+\"\s*:\s*\"?)([^\"{}]*?)(\"?\s*\})")
_MARKED = re.compile(r"((?i:(?:the |final )*answer(?: is)?:?|####)\s*)([^\n]*?)(\.?)")
_REASONING = re.compile(r"(?s)<(think\w*|thought|reason\w*|scratchpad)>.*?</\1>")


def _without_reasoning(text: str) -> str:
    return _REASONING.sub("", text).strip()


def _kind(content: str) -> str:
    """The kind of a content: a number, a letter, a word, words, several lines."""
    content = content.strip()
    if re.fullmatch(r"[+-]?[\d.,/]+%?", content):
        return "number"
    if len(content) == 1:
        return "letter"
    return "word" if re.fullmatch(r"\w+", content) else "lines" if "\n" in content else "words" if content else "empty"


def _shared_start(texts: Sequence[str]) -> str:
    """The characters that all texts begin with, cut back to the end of a word."""
    same = takewhile(lambda signs: len({*signs}) == 1, zip(*texts, strict=False))
    return re.sub(r"[\w.+-]+$", "", "".join(signs[0] for signs in same))


@dataclass(frozen=True)
class ProbeView:
    """The conversation at one turn of a probe."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    random: Random
    """Keyed by the episode and the turn."""
    example_count: int = 0
    """Answers in the messages that the probe did not give: examples of the prompt."""
    form: AnswerForm | None = None
    """The form of right answers, where some are known."""

    @property
    def turn(self) -> int:
        """Number of earlier answers of the probe."""
        return sum(message.role == "assistant" for message in self.messages) - self.example_count

    @cached_property
    def _opening(self) -> list[Message]:
        """The messages before the probe's first answer."""
        answers = [n for n, message in enumerate(self.messages) if message.role == "assistant"]
        own = answers[self.example_count :]
        return list(self.messages[: own[0]] if own else self.messages)

    @cached_property
    def prompt(self) -> str:
        """The messages before the probe's first answer, with instructions and examples."""
        return "\n".join(message.content for message in self._opening)[:MAX_PROMPT_CHARS]

    @cached_property
    def question(self) -> str:
        """The first message of the user; behind examples, the one that is to be answered."""
        asked = [message.content for message in self._opening if message.role == "user"]
        return ([*asked, self.prompt][-2 if self.example_count and asked else 0])[:MAX_PROMPT_CHARS]

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
        """Names of the tags that the prompt writes, or names as tags, in order, those for reasoning left out."""
        found = _TAG.findall(self.prompt) or _NAMED_TAG.findall(self.prompt)
        return [tag for tag in dict.fromkeys(found) if tag.lower() not in _THINKING]

    @cached_property
    def reasoning_tags(self) -> list[str]:
        """Names of the tags for reasoning."""
        return [tag for tag in dict.fromkeys(_TAG.findall(self.prompt)) if tag.lower() in _THINKING]

    @property
    def reasoning(self) -> str:
        """A text in the form of the requested reasoning; empty where none is requested."""
        return "".join(f"<{tag}>I thought about it.</{tag}>\n" for tag in self.reasoning_tags)

    def formatted(self, answer: str) -> str:
        """The answer in the form of known right answers, or the form that the prompt asks for: in its tags, in a box,
        after `Answer:`; else bare.
        """
        marked = "\\boxed" in self.prompt or "####" in self.prompt or _MARK.search(self.prompt) is not None
        if self.form is not None and (self.form.structured or not (self.tags or marked)):
            return self.reasoning + self.form.write(answer)
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
        elif (marker := _MARK.search(prompt)) is not None:
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
        """The probe's answer, where the messages hold no examples. Raises ProbeDoesNotFit where it has none."""
        return self.answer_to(ProbeView(messages, tools, Random(f"{key}/{len(messages)}")))

    def answer_to(self, view: ProbeView) -> Completion:
        """The probe's answer. Raises ProbeDoesNotFit where it has none."""
        answer = self.answer(view)
        if answer is None:
            raise ProbeDoesNotFit(self.name)
        return Completion(message=answer if isinstance(answer, Message) else assistant(answer))


@dataclass(slots=True)
class ProbePlayer:
    """A probe that tells its own answers from examples in the prompt, and knows the form of right answers."""

    probe: Probe
    form: AnswerForm | None = None
    example_counts: dict[str, int] = field(default_factory=dict)
    """Answers in the messages before the probe's first one, by conversation."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The probe's answer. Raises ProbeDoesNotFit where it has none."""
        examples = [message.content for message in messages if message.role == "assistant"]
        count = self.example_counts.setdefault(key, len(examples))
        form = self.form or (learn_form(examples[:count]) if count else None)
        return self.probe.answer_to(ProbeView(messages, tools, Random(f"{key}/{len(messages)}"), count, form))

    def release(self, key: str) -> None:
        """Forget a conversation that is over."""
        self.example_counts.pop(key, None)


def always_answer(text: str) -> ProbeAnswer:
    """The same text whatever the question, bare."""
    return lambda _: text


def constant_answer(answer: str) -> ProbeAnswer:
    """The same answer whatever the question, in the requested form."""
    return lambda view: view.formatted(answer)


def taken(take: Callable[[ProbeView], str]) -> ProbeAnswer:
    """What is taken from the view, in the requested form; None where the list that it is taken from is too short."""

    def say(view: ProbeView) -> str | None:
        try:
            return view.formatted(take(view))
        except (IndexError, ZeroDivisionError):
            return None

    return say


def named_probe(name: str, description: str, answer: ProbeAnswer, *, kind: str = "words") -> Probe:
    """A probe; of the kind `words` it writes, and uses no tools."""
    return Probe(name=name, description=description, answer=answer, kind=kind)
