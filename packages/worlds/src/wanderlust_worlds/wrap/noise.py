"""Seeded noise around a scenario: failing calls, renamed and re-described tools, distractors.

The task stays the same, and so do oracle and verification: the log has the true names, failed calls are no writes, and
distractors are no part of the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from wanderlust.errors import UsageError
from wanderlust_worlds.engine.events import DISTRACTOR_MARK, Event, PlannedCall
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.wrap.distractions import Distraction, distractions_of_apps
from wanderlust_worlds.wrap.world_environment import TOOL_NAME_SEPARATOR

VERB_SYNONYMS = {
    "send": "dispatch",
    "reply": "respond",
    "get": "fetch",
    "list": "show",
    "search": "find",
    "delete": "discard",
    "remove": "drop",
    "add": "insert",
    "create": "make",
    "move": "shift",
    "edit": "alter",
    "cancel": "revoke",
    "order": "request",
    "read": "view",
    "save": "keep",
    "wait": "pause",
    "email": "letter",
    "message": "note",
    "content": "body",
    "recipients": "addressees",
    "subject": "headline",
    "query": "phrase",
    "name": "label",
    "offset": "skip",
    "limit": "at_most",
}
"""Replacements for words in the names of tools and arguments."""
DESCRIPTION_VERBS = {
    "add": "insert",
    "answer": "respond to",
    "ask": "find out",
    "cancel": "call off",
    "change": "modify",
    "delete": "erase",
    "draw": "picture",
    "find": "look for",
    "forward": "send on",
    "have": "get",
    "list": "enumerate",
    "look": "look",
    "make": "set up",
    "move": "shift",
    "open": "access",
    "order": "request",
    "put": "place",
    "read": "view",
    "remove": "get rid of",
    "save": "keep",
    "search": "look through",
    "send": "dispatch",
    "show": "present",
    "start": "begin",
    "take": "pull",
    "tell": "report",
    "wait": "pause",
}
"""Replacements for the verb with which a description begins."""
DESCRIPTION_FRAMES = ("Lets you {}", "Use this to {}", "With this you can {}")


def with_failing_calls(scenario: Scenario, share: float) -> Scenario:
    """The scenario where this share of the agent's calls fails; equal seeds fail alike. The oracle's never do."""
    if not 0 <= share < 1:
        raise UsageError(f"a share of {share} of all calls cannot fail: give one from 0 to below 1")
    return replace(scenario, failures=share)


def with_renamed_tools(scenario: Scenario, share: float = 1.0, *, seed: int = 0) -> Scenario:
    """The scenario where this share of the tools, and of the arguments in their signatures, goes by other names.

    Names stay different from each other; arguments also get other ones where no word of them is known.
    """
    rng, names = Random(f"{scenario.id}/{seed}/names"), dict(scenario.names)
    taken = {f"{app.name}{TOOL_NAME_SEPARATOR}{action}" for app in scenario.apps for action in app.actions}
    for app in scenario.apps:
        for action in app.actions.values():
            if "agent" not in action.scopes:
                continue
            key = f"{app.name}.{action.name}"
            if rng.random() < share:
                names[key] = _free(f"{app.name}{TOOL_NAME_SEPARATOR}{_reword_name(action.name)}", taken)
            arguments = list(action.tool.schema["properties"])
            argument_names = set(arguments)
            for argument in arguments:
                if rng.random() < share:
                    names[f"{key}.{argument}"] = _free(_reword_name(argument), argument_names)
    return replace(scenario, names=names)


def with_described_tools(scenario: Scenario, share: float = 1.0, *, seed: int = 0) -> Scenario:
    """The scenario where this share of the tools is described in other words, which mean the same."""
    rng, texts = Random(f"{scenario.id}/{seed}/descriptions"), dict(scenario.descriptions)
    for app in scenario.apps:
        for action in app.actions.values():
            if "agent" in action.scopes and rng.random() < share:
                text = texts.get(f"{app.name}.{action.name}", action.tool.description)
                texts[f"{app.name}.{action.name}"] = _reword_description(text, rng)
    return replace(scenario, descriptions=texts)


def with_distractions(
    scenario: Scenario,
    per_minute: float,
    *,
    pool: Sequence[Distraction] = (),
    seed: int = 0,
    until: float | None = None,
) -> Scenario:
    """The scenario with distractors at this rate (a Poisson process), until its end or `until` seconds after its start.

    Without a `pool` each app in which something can happen by itself has its own (`distractions_of_apps`), and all apps
    are equally likely. Raises UsageError where there is nothing to send.
    """
    own = {"": list(pool)} if pool else distractions_of_apps(scenario)
    if per_minute < 0 or (per_minute and not own):
        raise UsageError(f"{per_minute} distractors a minute: there is nothing in {scenario.id!r} to make them of")
    rng = Random(f"{scenario.id}/{seed}/distractors")
    known = sum(event.id.startswith(DISTRACTOR_MARK) for event in scenario.events)
    end, time, more = scenario.duration if until is None else until, 0.0, list[Event]()
    while per_minute and (time := time + rng.expovariate(per_minute / 60)) < end:
        one = rng.choice(own[rng.choice([*own])])
        name = f"{DISTRACTOR_MARK}_{known + len(more) + 1}"
        more.append(PlannedCall(id=name, app=one.app, action=one.action, args=one.args, delay=time, by="env"))
    return replace(scenario, events=(*scenario.events, *more))


def with_noise(
    scenario: Scenario,
    *,
    failures: float = 0.0,
    names: float = 0.0,
    descriptions: float = 0.0,
    per_minute: float = 0.0,
    seed: int = 0,
) -> Scenario:
    """All four: calls that fail, other names, other descriptions, distractors; each at its rate."""
    result = with_failing_calls(scenario, failures)
    result = with_renamed_tools(result, names, seed=seed) if names else result
    result = with_described_tools(result, descriptions, seed=seed) if descriptions else result
    return with_distractions(result, per_minute, seed=seed) if per_minute else result


def _reword_name(name: str) -> str:
    words = [VERB_SYNONYMS.get(word, VERB_SYNONYMS.get(word.removesuffix("s"), "")) or word for word in name.split("_")]
    new_name = "_".join(words)
    return new_name if new_name != name else f"{name}_value" if "_" not in name else "_".join(reversed(words))


def _reword_description(text: str, rng: Random) -> str:
    """A description with another verb in a frame; one that begins otherwise is only announced."""
    verb, space, rest = text.partition(" ")
    other = DESCRIPTION_VERBS.get(verb.lower())
    frame = rng.choice(DESCRIPTION_FRAMES)
    return f"What it does: {text}" if other is None else frame.format(f"{other}{space}{rest}")


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
