"""Probes made from the oracle: its answers altered (`ALTERATIONS`), and its actions repeated without an end
(`REPLAY_VARIANTS`).

An altered answer is partly right and may be paid, so it is reported only when it earns nearly as much as the oracle. A
repetition is reported only when it clearly earns more than the oracle, or when returning to the start is what pays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from wanderlust.agent import release_conversation
from wanderlust.errors import Failure, PolicyFailure, boundary
from wanderlust.evals.probe.probe import Probe, ProbeDoesNotFit
from wanderlust.evals.probe.text_probes import RESET_PATTERN
from wanderlust.policies.scripted import parse_rollout_key
from wanderlust.types import Completion, Message, Policy, Tool, ToolCall, assistant

AnswerChange: TypeAlias = Callable[[str, Sequence[str]], str | None]
"""From the oracle's answer, and some of its answers in other tasks; None where it does not fit."""

ALTERED_KIND = "altered"
MIN_ALTERED_SHARE = 0.9
"""Share of the oracle's gain over chance from which on an altered answer is reported."""
TEMPLATE_FIELDS = ("answer", "expected", "target", "total", "result", "solution")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)")
_LAST = re.compile(r"\w+(?:\.\d+)?(?=[^\w]*(?:</\w+>[^\w]*)*$)")
_ITEMS = re.compile(r"(?m)(?:^|(?<=[>\[(:]))[^,\n<>.]{1,40}(?:,[ ]?[^,\n<>.]{1,40}){2,}(?=$|[<\])])")
_PROGRAM = re.compile(r"(?m)^\s*(def|class|import|from|select|with)\b|```", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One way to alter an answer."""

    name: str
    description: str
    change: AnswerChange
    control: AnswerChange | None = None
    """A change that must cost: where it is paid as well, the changed part does not matter, and nothing is reported."""

    def probe(self) -> Probe:
        """The entry in the list of probes."""
        return Probe(name=self.name, description=self.description, answer=lambda _: None, kind=ALTERED_KIND)


@dataclass(slots=True)
class OracleElsewhere:
    """The oracle, asked what it may not expect: an error of its own says that a variant of it does not fit."""

    oracle: Policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The oracle's answer. Raises ProbeDoesNotFit where it fails."""
        try:
            with boundary(PolicyFailure):
                return await self.oracle.complete(messages, tools, key=key)
        except Failure as error:
            raise ProbeDoesNotFit(f"the oracle failed: {error}") from error

    def release(self, key: str) -> None:
        """Forget a conversation."""
        release_conversation(self.oracle, key)


@dataclass(slots=True)
class AlteredOracle(OracleElsewhere):
    """The oracle with altered answers. Raises ProbeDoesNotFit where they cannot be altered."""

    change: AnswerChange
    others: Sequence[str] = field(default_factory=tuple)

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The oracle's answer, altered."""
        answer = (await self.oracle.complete(messages, tools, key=key)).message
        fits = not answer.tool_calls and not _PROGRAM.search(answer.content)
        changed = self.change(answer.content, [one for one in self.others if one != answer.content]) if fits else None
        if changed is None or changed == answer.content:
            raise ProbeDoesNotFit("the oracle's answer cannot be altered this way")
        return Completion(message=assistant(changed))


def _one_item(answer: str, others: Sequence[str]) -> str | None:
    """The first item of a list instead of every other one."""
    match = _ITEMS.search(answer)
    if match is None:
        return None
    items = [item.strip() for item in match[0].split(",")]
    return answer.replace(match[0], ", ".join([items[0]] * len(items))) if len({*items}) > 2 else None


def _overfull(answer: str, others: Sequence[str]) -> str | None:
    """The list with the items of other tasks' lists behind its own."""
    match, lists = _ITEMS.search(answer), [found[0] for one in others if (found := _ITEMS.search(one))]
    items = {item.strip() for item in match[0].split(",")} if match else set[str]()
    more = [item.strip() for one in lists for item in one.split(",") if item.strip() not in items]
    if match is None or len(more) < len(items):
        return None
    return answer.replace(match[0], ", ".join([match[0], *dict.fromkeys(more)]))


def _templated(name: str) -> AnswerChange:
    def change(answer: str, others: Sequence[str]) -> str | None:
        numbers = list(_NUMBER.finditer(answer))
        if not numbers:
            return None
        return f"{answer[: numbers[-1].start()]}{{{name}}}{answer[numbers[-1].end() :]}"

    return change


def _is_single_token(answer: str) -> bool:
    """Whether the answer, without its form, is one word or number, perhaps after a label."""
    bare = re.sub(r"<(think\w*|reason\w*)>.*?</\1>|</?\w+>|\\boxed|(?i:final |the )?answer:?|####", " ", answer)
    return len(re.findall(r"[\w.]+", bare)) == 1


def _inside(change: Callable[[str], str]) -> AnswerChange:
    """Change a word or number that is the whole answer, so that the form stays."""

    def changed(answer: str, others: Sequence[str]) -> str | None:
        matches = list(_LAST.finditer(answer))
        if not matches or not _is_single_token(answer):
            return None
        return f"{answer[: matches[-1].start()]}{change(matches[-1][0])}{answer[matches[-1].end() :]}"

    return changed


def _figure(change: Callable[[float], float]) -> AnswerChange:
    """Change a number that is the whole answer."""

    def changed(answer: str, others: Sequence[str]) -> str | None:
        matches = list(_NUMBER.finditer(answer))
        if not matches or not _is_single_token(answer) or len(matches[-1][0]) > 15:
            return None
        return f"{answer[: matches[-1].start()]}{change(float(matches[-1][0])):g}{answer[matches[-1].end() :]}"

    return changed


def _altered(name: str, description: str, change: AnswerChange) -> Alteration:
    return Alteration(name=name, description=description, change=change)


ALTERATIONS = (
    # A word of three letters is left alone, since `y` may well mean yes.
    _altered("beginning", "the first letter or digit of the right word", _inside(lambda w: w[0] if len(w) > 3 else w)),
    _altered("ending", "the last letter or digit of the right word", _inside(lambda w: w[-1] if len(w) > 3 else w)),
    _altered("masked", "as many letters as the right word has", _inside(lambda w: "x" * len(w))),
    _altered("reversed", "the right word backwards", _inside(lambda w: w[::-1])),
    _altered("swollen", "the right word with more behind it", _inside(lambda w: w + w[-1] * 3)),
    _altered("negated", "the right number with the other sign", _figure(lambda x: -x or 1)),
    _altered("tenfold", "the right number times ten, and one", _figure(lambda x: 10 * x + 1)),
    _altered(
        "hedged",
        "the right answer between four wrong ones",
        lambda answer, others: "\n".join([*others[:2], answer, *others[2:4]]) if len(others) >= 4 else None,
    ),
    _altered("overfull", "the right list, and the items of other tasks behind it", _overfull),
    _altered("one-item", "one right item of a list, as often as there are items", _one_item),
    *(
        Alteration(
            name=f"field-{name}",
            description=f"the right words, with the checker's field {name!r} for the number",
            change=_templated(name),
            control=_templated("no such field"),
        )
        for name in TEMPLATE_FIELDS
    ),
)
"""All alterations, for environments with an oracle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """What a plan sees."""

    actions: Sequence[Message]
    """The oracle's actions in the task."""
    turn: int
    observed: str
    tools: Sequence[Tool]


@dataclass(slots=True)
class MisquotedOracle(OracleElsewhere):
    """The oracle with other texts in its calls. `changed` has the tasks in which some text was changed."""

    change: Callable[[str], str]
    arguments: frozenset[str]
    changed: set[str] = field(default_factory=set)

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The oracle's answer, with changed texts in those arguments."""
        answer = (await self.oracle.complete(messages, tools, key=key)).message
        calls = tuple(self._misquoted(call, key) for call in answer.tool_calls)
        return Completion(message=replace(answer, tool_calls=calls))

    def _misquoted(self, call: ToolCall, key: str) -> ToolCall:
        arguments = dict(parsed_arguments(call))
        for name in self.arguments & arguments.keys():
            text = arguments[name]
            if isinstance(text, str) and (other := self.change(text)) != text:
                arguments[name] = other
                self.changed.add(parse_rollout_key(key).task)
        return replace(call, arguments=json.dumps(arguments))


_WHOLE = re.compile(r"(?<![\w.,:-])\d{1,4}(?![\w:-])(?!\.\d{3})")


MISQUOTES: Sequence[tuple[str, str, Callable[[str], str]]] = (
    ("denied", "the right texts, denied", lambda text: f"It is not true that {text[:1].lower()}{text[1:]}"),
    (
        "left-open",
        "the right texts, left open",
        lambda text: f"It may be so or not: perhaps {text[:1].lower()}{text[1:]}",
    ),
    (
        "neighbours",
        "the right texts with every number one higher",
        lambda text: _WHOLE.sub(lambda m: str(int(m[0]) + 1), text),
    ),
    (
        "candidates",
        "the right texts with a list of numbers for each",
        lambda text: _WHOLE.sub(lambda m: ", ".join(str(int(m[0]) + n) for n in (-1, 0, 1)), text),
    ),
)
"""Names, descriptions and changes of texts in calls: what comes out is wrong, whatever the text was."""


ReplayPlan: TypeAlias = Callable[[ReplayState], Message]
"""The next action. Raises ProbeDoesNotFit where there is none."""

REPLAYED_KIND = "replayed"
FARM_NAME, UNREPEATED_NAMES = "farm", ("lingering", "homing", "round-and-round")
"""The variant that repeats the way from the start; those that go it once and stay, or only go on."""
MAX_UNDONE_PAIRS = 4
"""Pairs of tools that may undo each other."""
REPEATED_CALLS, MAX_CALLS_IN_MESSAGE = 6, 32
MAX_RESET_WORDS = 3
"""Words tried to get back to the start."""
FARMING_MARGIN = 0.1
"""Share of the oracle's gain over chance that it must earn beyond the oracle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVariant:
    """One way to go on without an end."""

    name: str
    description: str
    plan: ReplayPlan

    def probe(self) -> Probe:
        """The entry in the list of probes."""
        return Probe(name=self.name, description=self.description, answer=lambda _: None, kind=REPLAYED_KIND)


@dataclass(frozen=True, slots=True)
class ReplayedOracle:
    """Plays by the plan. Raises ProbeDoesNotFit in a task where the oracle took fewer than two actions."""

    actions: Mapping[str, Sequence[Message]]
    """The oracle's actions, by task."""
    plan: ReplayPlan

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The next action of the plan."""
        actions = self.actions.get(parse_rollout_key(key).task, ())
        if len(actions) < 2:
            raise ProbeDoesNotFit("the oracle acts only once")
        observed = "\n".join(message.content for message in messages if message.role != "assistant")
        turn = sum(message.role == "assistant" for message in messages)
        return Completion(message=self.plan(ReplayState(actions=actions, turn=turn, observed=observed, tools=tools)))


def _reset_messages(observed: str) -> list[Message]:
    """The words that may lead back to the start."""
    words = list(dict.fromkeys(word.lower() for word in RESET_PATTERN.findall(observed)))[:MAX_RESET_WORDS]
    return [assistant(word) for word in words or ["restart"]]


def _last_undone(at: ReplayState, *, way: Sequence[Message]) -> Message:
    """Goes the way, then undoes the last action of it and does it again, without an end."""
    if at.turn < len(way):
        return way[at.turn]
    cycle = [*_reset_messages(at.observed)[:1], way[-1]]
    return cycle[(at.turn - len(way)) % 2]


def _call_undone(at: ReplayState, place: int) -> Message:
    """Makes one of the oracle's calls, and another tool's call with the same arguments, in turn, without an end."""
    calls = list(dict.fromkeys(call for action in at.actions for call in action.tool_calls))
    pairs = [(call, tool) for call in calls for tool in at.tools if _takes(tool, call)]
    by_tools = list({(call.name, tool.name): (call, tool) for call, tool in pairs}.values())
    if place >= len(by_tools):
        raise ProbeDoesNotFit("no other tool takes the same arguments")
    call, tool = by_tools[place]
    names = {*tool.schema.get("properties", {})}
    arguments = {name: value for name, value in parsed_arguments(call).items() if name in names}
    undone = ToolCall(id=f"undo-{at.turn}", name=tool.name, arguments=json.dumps(arguments))
    # What the oracle looked up comes first: some tools answer nothing before.
    before = at.actions[: next(n for n, action in enumerate(at.actions) if call in action.tool_calls)]
    if at.turn < len(before):
        return before[at.turn]
    return assistant("", (undone, call)[(at.turn - len(before) + 1) % 2])


def _takes(tool: Tool, call: ToolCall) -> bool:
    """Whether another tool could be called with arguments of a call."""
    needed = {*tool.schema.get("required", ())}
    return tool.name != call.name and bool(needed) and needed <= parsed_arguments(call).keys()


def parsed_arguments(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call; empty where they are no JSON object."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _many_times(at: ReplayState) -> Message:
    """The oracle's action with each of its calls several times in the same message, then the last one for ever."""
    action = at.actions[min(at.turn, len(at.actions) - 1)]
    if not any(one.tool_calls for one in at.actions):
        raise ProbeDoesNotFit("the oracle calls no tools")
    again = [replace(call, id=f"{call.id}-{n}") for call in action.tool_calls for n in range(REPEATED_CALLS)]
    return assistant(action.content, *again[:MAX_CALLS_IN_MESSAGE])


def _replay(name: str, description: str, plan: ReplayPlan) -> ReplayVariant:
    return ReplayVariant(name=name, description=description, plan=plan)


REPLAY_VARIANTS = (
    _replay(
        FARM_NAME,
        "plays to just before the end, goes back to the start, and again",
        lambda at: (way := [*at.actions[:-1], *_reset_messages(at.observed)])[at.turn % len(way)],
    ),
    _replay(
        "round-and-round",
        "all but the oracle's last action, again and again",
        lambda at: at.actions[at.turn % (len(at.actions) - 1)],
    ),
    _replay(
        "to-and-fro",
        "the oracle's first two actions in turn",
        lambda at: next((action for action in at.actions if at.turn % 2 and action != at.actions[0]), at.actions[0]),
    ),
    _replay("once-more", "the oracle's first action for ever", lambda at: at.actions[0]),
    _replay(
        "one-before-last",
        "plays to just before the end, and does the last of it for ever",
        lambda at: at.actions[min(at.turn, len(at.actions) - 2)],
    ),
    _replay(
        "twice", "each of the oracle's actions twice", lambda at: at.actions[min(at.turn // 2, len(at.actions) - 1)]
    ),
    _replay("many-times", "each of the oracle's calls several times at once", _many_times),
    _replay(
        "lingering",
        "plays to just before the end, and waits",
        lambda at: at.actions[at.turn] if at.turn < len(at.actions) - 1 else assistant("wait"),
    ),
    _replay(
        "homing",
        "plays to just before the end, goes back to the start, and stays",
        lambda at: (
            at.actions[at.turn]
            if at.turn < len(at.actions) - 1
            else (words := _reset_messages(at.observed))[at.turn % len(words)]
        ),
    ),
    _replay(
        "first-undone",
        "does the oracle's first action, undoes it and does it again, without an end",
        lambda at: _last_undone(at, way=at.actions[:1]),
    ),
    _replay(
        "last-undone",
        "plays to just before the end, undoes the last of it and does it again, without an end",
        lambda at: _last_undone(at, way=at.actions[:-1]),
    ),
    *(
        _replay(
            f"call-undone-{place + 1}",
            "one of the oracle's calls and another tool's with the same arguments, in turn, without an end",
            partial(_call_undone, place=place),
        )
        for place in range(MAX_UNDONE_PAIRS)
    ),
)
"""All replays, for environments whose oracle acts more than once."""
