"""Seeded noise around a scenario: failing calls, renamed tools, distractors.

The task stays the same, and so do oracle and verification: the log has the true names, failed calls are no writes, and
distractors are no part of the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.worlds.apps.mail import Mailbox
from wanderlust.worlds.engine.events import DISTRACTOR_MARK, Event, PlannedCall
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.wrap.world_environment import TOOL_NAME_SEPARATOR

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
DISTRACTION_SUBJECTS = (
    "Newsletter",
    "Your weekly summary",
    "Offer of the day",
    "A survey for you",
    "System maintenance",
)
DISTRACTION_SENDERS = ("news@example.com", "offers@example.net", "noreply@example.com")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distraction:
    """An action of the environment that has nothing to do with the task."""

    app: str
    action: str
    args: dict[str, Any]


def with_failing_calls(scenario: Scenario, share: float) -> Scenario:
    """The scenario where this share of the agent's calls fails; equal seeds fail alike. The oracle's never do."""
    if not 0 <= share < 1:
        raise UsageError(f"a share of {share} of all calls cannot fail: give one from 0 to below 1")
    return replace(scenario, failures=share)


def with_renamed_tools(scenario: Scenario, share: float = 1.0, *, seed: int = 0) -> Scenario:
    """The scenario where this share of the tools, and of their arguments, goes by other names.

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


def with_distractions(
    scenario: Scenario,
    per_minute: float,
    *,
    pool: Sequence[Distraction] = (),
    seed: int = 0,
    until: float | None = None,
) -> Scenario:
    """The scenario with distractors at this rate (a Poisson process), until its end or `until` seconds after its start.

    Without a `pool` they are mails from strangers to every mailbox. Raises UsageError where there is nothing to send.
    """
    distractions = pool or [
        Distraction(
            app=box.name,
            action="send_email_to_user_only",
            args={"sender": sender, "subject": subject, "content": f"{subject}: nothing that you must answer."},
        )
        for box in scenario.apps
        if isinstance(box, Mailbox)
        for sender in DISTRACTION_SENDERS
        for subject in DISTRACTION_SUBJECTS
    ]
    if per_minute < 0 or (per_minute and not distractions):
        raise UsageError(f"{per_minute} distractors a minute: there is nothing in {scenario.id!r} to make them of")
    rng = Random(f"{scenario.id}/{seed}/distractors")
    end, time, more = scenario.duration if until is None else until, 0.0, list[Event]()
    while per_minute and (time := time + rng.expovariate(per_minute / 60)) < end:
        one = rng.choice(distractions)
        name = f"{DISTRACTOR_MARK}_{len(more) + 1}"
        more.append(PlannedCall(id=name, app=one.app, action=one.action, args=one.args, delay=time, by="env"))
    return replace(scenario, events=(*scenario.events, *more))


def with_noise(
    scenario: Scenario, *, failures: float = 0.0, names: float = 0.0, per_minute: float = 0.0, seed: int = 0
) -> Scenario:
    """All three: calls that fail, other names, distractors; each at its rate."""
    result = with_failing_calls(scenario, failures)
    result = with_renamed_tools(result, names, seed=seed) if names else result
    return with_distractions(result, per_minute, seed=seed) if per_minute else result


def _reword_name(name: str) -> str:
    words = [VERB_SYNONYMS.get(word, VERB_SYNONYMS.get(word.removesuffix("s"), "")) or word for word in name.split("_")]
    new_name = "_".join(words)
    return new_name if new_name != name else f"{name}_value" if "_" not in name else "_".join(reversed(words))


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
