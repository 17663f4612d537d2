"""Scripted policies for lives: the oracle, and one that follows keywords."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from math import ceil
from typing import Any, TypeAlias

from wanderlust.errors import UsageError
from wanderlust.types import Completion, Message, Tool, ToolCall, assistant
from wanderlust_life.universes.text_templates import format_price
from wanderlust_worlds.engine.events import is_agent_call
from wanderlust_worlds.wrap.assistant import MAX_WAIT_SECONDS, WAIT_ACTION, call_due_at, tool_call_message
from wanderlust_worlds.wrap.teams import EXPERT_TOOL_NAME
from wanderlust_worlds.wrap.world_environment import TOOL_NAME_SEPARATOR, AppTool


class OraclePolicy:
    """Does what the oracle of a world does, in time, through the tools that it is offered.

    It looks into the world behind the tools, which no other policy can. In a team it asks the agents of apps to act,
    and acts itself where it sits on their seats.
    """

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The next act, or waiting for it."""
        own = {(tool.app, tool.action.name): tool for tool in tools if isinstance(tool, AppTool)}
        if not own:
            raise UsageError("the oracle needs the tools of a world")
        world, call_id = next(iter(own.values())).world, f"call-{len(messages)}"
        due = sorted(
            ((call_due_at(world, act), n, act) for n, act in enumerate(world.expected)), key=lambda one: one[:2]
        )
        ready = [act for at, _, act in due if at <= world.now]
        for act in ready:
            if (act.app, act.action) in own:
                call = tool_call_message(own[act.app, act.action], world.args_of(act), call_id=call_id)
                return Completion(message=call)
        waiting = next((tool for (_, action), tool in own.items() if action == WAIT_ACTION), None)
        if waiting is None:
            return Completion(message=assistant("Done."))
        for act in ready:
            expert = f"{act.app}{TOOL_NAME_SEPARATOR}{EXPERT_TOOL_NAME}"
            if any(tool.name == expert for tool in tools):
                task = json.dumps({"task": f"Use {act.action}."})
                return Completion(message=assistant("", ToolCall(id=call_id, name=expert, arguments=task)))
        if all(event.id in world.done for event in world.plan.events.values() if is_agent_call(event)):
            return Completion(message=assistant(""))
        seconds = ceil(due[0][0] - world.now) if due else MAX_WAIT_SECONDS
        return Completion(message=tool_call_message(waiting, {"timeout": seconds}, call_id=call_id))


CallPlan: TypeAlias = Generator[tuple[str, dict[str, Any]], Any, str]
"""Yields calls, is sent their results, and returns the answer to the user."""
PLANS_BY_PATTERN: dict[str, Callable[..., CallPlan]] = {}
"""The plan for requests that match a pattern; the first match counts."""


class KeywordPolicy:
    """Knows a few kinds of requests, takes the first result that fits, and never asks, waits or looks again."""

    def __init__(self, plans: Mapping[str, Callable[..., CallPlan]] | None = None):
        """`plans` by the pattern of their requests, the first that matches counts; those of `life` unless given."""
        self._plans = PLANS_BY_PATTERN if plans is None else plans

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The next call of its plan, which it goes through again from the start with the results so far."""
        request = next((m.content for m in messages if m.role == "user"), "")
        results = [_parsed(m.content) for m in messages if m.role == "tool"]
        matches = ((re.search(pattern, request), plan) for pattern, plan in self._plans.items())
        plan = next(plan(*match.groups()) for match, plan in matches if match)
        if sum(m.role == "assistant" and not m.tool_calls for m in messages):
            return Completion(message=assistant(""))
        try:
            name, args = next(plan)
            for result in results:
                name, args = plan.send(result)
        except StopIteration as end:
            return Completion(message=assistant(end.value))
        except (LookupError, TypeError, ValueError, AttributeError):
            return Completion(message=assistant("I could not find that."))
        call = ToolCall(id=f"call-{len(messages)}", name=name, arguments=json.dumps(args))
        return Completion(message=assistant("", call))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def plan_for(pattern: str) -> Callable[[Callable[..., CallPlan]], Callable[..., CallPlan]]:
    """Decorate a plan for requests of a pattern; it is called with the pattern's groups."""

    def mark(plan: Callable[..., CallPlan]) -> Callable[..., CallPlan]:
        PLANS_BY_PATTERN[pattern] = plan
        return plan

    return mark


@plan_for(r"ancel my order (\S+?),")
def _cancel(number: str) -> CallPlan:
    order = yield "Shopping__get_order_details", {"order_id": number}
    if order["order_status"] in ("processed", "shipped"):
        yield "Shopping__cancel_order", {"order_id": number}
        return "It is cancelled."
    price = format_price(order["order_total"])
    return f"Order {number} cannot be cancelled: it is {order['order_status']}. It cost {price}."


@plan_for(r"paid for rides to (.+?) (?:in all|altogether)")
def _rides(place: str) -> CallPlan:
    total, offset = 0.0, 0
    while True:
        page = yield "Cabs__get_ride_history", {"offset": offset, "limit": 50}
        rides = page["rides"].values()
        total += sum(one["price"] for one in rides if one["end_location"] == place and one["status"] == "COMPLETED")
        offset += 50
        if offset >= page["total"]:
            return f"{total:.2f} EUR in all."


@plan_for(r"cheapest flat on the market with (\d) bedrooms? and a lease of '(.+?)'(?: and the amenity '(.+?)')?")
def _flat(bedrooms: str, lease: str, amenity: str | None) -> CallPlan:
    wanted: dict[str, Any] = {"number_of_bedrooms": int(bedrooms), "lease_term": lease}
    homes = yield "RentAFlat__search_apartments", wanted | ({"amenities": [amenity]} if amenity else {})
    best = min(homes.values(), key=lambda one: one["price"])
    rates = yield "City__get_crime_rate", {"zip_code": best["zip_code"]}
    return f"{best['name']}, {best['price']:.2f} EUR; the violent crime rate is {rates['violent_crime']}."


@plan_for(r"read\b (?:that I have to read )?(.+?)\. Who was it")
def _correct_book(book: str) -> CallPlan:
    talks = yield "Chats__search", {"query": book}
    talk = yield "Chats__read_conversation", {"conversation_id": talks[0], "limit": 50}
    who = next(one["sender_id"] for one in talk["messages"] if book in one["content"])
    name = yield "Chats__get_user_name_from_id", {"user_id": who}
    results = yield "Contacts__search_contacts", {"query": name}
    return f"{name}, who lives in {results[0]['city_living']}."


@plan_for(r"ail (\w+) that (I am at .+?)(?:, and tell me when it is done)?\.$")
def _mail(first: str, text: str) -> CallPlan:
    results = yield "Contacts__search_contacts", {"query": first}
    yield "Emails__send_email", {"recipients": [results[0]["email"]], "subject": "From me", "content": text}
    return "Sent."


@plan_for(r"Ask ([^,]+?) in Chats whether I can have the (.+?) back")
def _ask(name: str, thing: str) -> CallPlan:
    user = yield "Chats__get_user_id", {"user_name": name}
    yield "Chats__send_message", {"user_id": user, "content": f"Can I have the {thing} back today?"}
    return f"I have asked {name}."


@plan_for("")  # any other request
def _give_up() -> CallPlan:
    yield "System__get_current_time", {}
    return "Done."
