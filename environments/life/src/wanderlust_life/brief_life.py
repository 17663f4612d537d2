"""Six families of a person's life in few words, which one small model can learn together, and their teachers.

World, clock, notifications, verdict and the scenarios themselves are those of `life`. Names of people, ids, addresses
of mail, homes and places to meet have handles. A teacher knows how a matter is handled, and is careless at what the
family is about: for how long to wait, whose message it was, what is still to be done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from wanderlust.environment import Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Policy, Task
from wanderlust_life.assistant_life import FAMILY_SPLITS, AssistantLife
from wanderlust_life.brief_worlds import LONG, BriefWorlds, Verb
from wanderlust_worlds.wrap.assistant import idle_policy

PLACE = r"\bThe [A-Z]\w+ [A-Z]\w+\b"
HOME = r"\b\d+ [A-Z]\w+ [A-Z]\w+, [A-Z]\w+\b"
BRIEF_VERBS: Mapping[str, Verb] = {
    "id": Verb(tool="Chats__get_user_id", takes=("user_name",)),
    "chat": Verb(tool="Chats__send_message", takes=("user_id", "content")),
    "read": Verb(tool="Chats__read_conversation", takes=("conversation_id",), given={"limit": 1}, shows=("content",)),
    "wait": Verb(tool="System__wait_for_notification", takes=("timeout",)),
    "group": Verb(tool="Chats__search", takes=("query",)),
    "say": Verb(tool="Chats__send_message_to_group_conversation", takes=("conversation_id", "content")),
    "address": Verb(tool="Contacts__search_contacts", takes=("query",), shows=("email",)),
    "newest": Verb(tool="Emails__list_emails", given={"limit": 1}, shows=("email_id",)),
    "forward": Verb(tool="Emails__forward_email", takes=("email_id", "recipients")),
    "mail": Verb(tool="Emails__send_email", takes=("recipients", "content"), given={"subject": "Question"}),
    "find": Verb(tool="Shopping__search_product", takes=("product_name",), shows=("colour", "item_id", "price")),
    "add": Verb(tool="Shopping__add_to_cart", takes=("item_id",)),
    "buy": Verb(tool="Shopping__checkout"),
    "cab": Verb(
        tool="Cabs__order_ride", takes=("start_location", "end_location", "service_type"), shows=("service_type",)
    ),
}
CARE = 0.75
"""Probability that the teacher is careful, at each turn at which it can err."""


@dataclass(frozen=True, slots=True)
class BriefTalk:
    """What a teacher has read and said, and how careful it is now."""

    read: Sequence[str]
    said: Sequence[str]
    rng: Random
    care: float

    @property
    def request(self) -> str:
        """What the user asked for."""
        return self.read[0].partition("\n")[2]

    @property
    def news(self) -> str:
        """What was read last, without the clock."""
        return self.read[-1].partition("\n")[2]

    @property
    def verb(self) -> str:
        """The first word that was said last; empty at the start."""
        return self.said[-1].split(" ")[0] if self.said else ""

    def careful(self) -> bool:
        """A draw."""
        return self.rng.random() < self.care

    def turns(self, verb: str) -> list[int]:
        """The turns that began with this verb."""
        return [turn for turn, text in enumerate(self.said) if text.split(" ")[0] == verb]

    def heard(self, turn: int) -> str:
        """What came of this turn."""
        return self.read[turn + 1].partition("\n")[2]

    def since(self, turn: int) -> int:
        """Seconds that have gone by since this turn."""
        return seconds_of(self.read[-1]) - seconds_of(self.read[turn + 1])

    def wait(self, left: int) -> str:
        """Wait for so long, or, without care, for another time."""
        return f"wait {left if self.careful() else 30 * self.rng.randint(1, 20)}"

    @property
    def came(self) -> str:
        """The handle in the last notification; empty when nothing came."""
        found = re.findall(r"(?:received|cancelled).*?(#\d+)?$", self.news)
        return found[-1] if found else ""


def seconds_of(read: str) -> int:
    """The clock of a message."""
    minutes, _, seconds = read.partition("\n")[0].partition(":")
    return 60 * int(minutes) + int(seconds)


Handling = Callable[[BriefTalk], str]


def handle_no_answer(seen: BriefTalk) -> str:  # noqa: PLR0911 (a case each)
    """Ask; wait for exactly as long as one was told; ask the other."""
    who, thing, minutes, other = found(
        seen, r"Ask (#\d+) in Chats whether I can have the (.+?) back.*? within (\d+) minutes, ask (#\d+) "
    )
    asked = seen.turns("chat")
    match seen.verb:
        case "":
            return f"id {who}"
        case "id":
            return f"chat {seen.news} can I have the {thing} back today?"
        case "chat" if len(asked) > 1:
            return f"I asked {other}."
        case "read":
            return f"{who} says: {seen.news}"
        case "wait" if seen.came and (seen.came == seen.heard(asked[0]) or not seen.careful()):
            return f"read {seen.came}"
    left = 60 * int(minutes) - seen.since(asked[0])
    if left > 0 and (seen.verb == "chat" or seen.careful()):
        return seen.wait(left)
    return f"id {other}" if seen.careful() else f"I asked {other}."


def handle_ask_around(seen: BriefTalk) -> str:  # noqa: PLR0911 (a case each)
    """Ask one after the other, and the next only after a no."""
    thing, named = found(seen, r"bring an? (.+?) on Saturday\. Ask (#\d+(?:, then #\d+)+) in Chats")
    people, asked = named.split(", then "), seen.turns("chat")
    who = people[min(len(asked), len(people)) - 1]
    following = people[min(len(asked), len(people) - 1)]
    match seen.verb:
        case "":
            return f"id {people[0]}"
        case "id":
            return f"chat {seen.news} can you bring a {thing} on Saturday?"
        case "chat":
            return "wait 600" if seen.careful() else f"{who} brings it."
        case "read" if seen.news.startswith("Yes"):
            return f"{who} brings it."
        case "read":
            return f"id {following}" if len(asked) < len(people) and seen.careful() else f"{following} brings it."
        case "wait" if seen.came and (seen.came == seen.heard(asked[-1]) or not seen.careful()):
            return f"read {seen.came}"
    return "wait 600" if seen.careful() else f"{who} brings it."


def handle_watch_for(seen: BriefTalk) -> str:  # noqa: PLR0911 (a case each)
    """Forward the right mail as soon as it is there; ask for it when it has not come in time."""
    who, topic, keeper, minutes = found(
        seen,
        r"(#\d+) is going to mail me the numbers on the (.+?)\. .*?forward it to (#\d+)\. .*?within (\d+) minutes",
    )
    known = [seen.heard(turn) for turn in seen.turns("address")]
    match seen.verb:
        case "":
            return f"address {who}"
        case "address" if len(known) < 2:
            return f"address {keeper}"
        case "newest":
            return f"forward {seen.news} {known[1]}"
        case "forward":
            return f"I have forwarded it to {keeper}."
        case "mail":
            return f"Nothing came, so I have asked {who}."
        case "wait" if seen.came and (seen.came == known[0] or not seen.careful()):
            return "newest"
    left = 60 * int(minutes) - seconds_of(seen.read[-1])
    return seen.wait(left) if left > 0 else f"mail {known[0]} could you send me the numbers on the {topic}?"


def handle_countdown(seen: BriefTalk) -> str:
    """Say how much is left, at equal times; where a talk that was found is no group, try the next."""
    title, whole, every = found(seen, r"group chat '(.+?)' now: '(\d+) minutes left'\. Then do so every (\d+) minutes")
    if not seen.verb:
        return f"group {title}"
    said = [turn for turn in seen.turns("say") if not seen.heard(turn).startswith("error")]
    if seen.said[-1].endswith(" 0 minutes left") and not seen.news.startswith("error"):
        return "It is over."
    left = 60 * int(every) - seen.since(said[-1]) if said else 0
    if left > 0 and (seen.verb == "say" or seen.careful()):
        return seen.wait(left)
    talks = re.findall(r"#\d+", seen.heard(0))
    wrong = len(seen.turns("say")) - len(said)
    shown = int(whole) - int(every) * len(said) if seen.careful() else int(every) * seen.rng.randint(0, 2)
    return f"say {talks[wrong] if wrong < len(talks) else '#1'} {max(shown, 0)} minutes left"


def handle_sold_out(seen: BriefTalk) -> str:  # noqa: PLR0911 (a case each)
    """Order; order the second choice when the shop cancels; report after ten minutes in which it did not."""
    what, first, second = found(seen, r"Order the \w+ (.+?) in (\w+) \(one piece\)\. .*?(?:take|order) (\w+) instead")
    bought = seen.turns("buy")
    colour = (first, second)[min(max(len(bought) - 1, 0), 1)]
    if not seen.verb:
        return f"find {what}"
    items = {colour: (item, price) for colour, item, price in re.findall(r"(\w+) (#\d+) ([\d.]+)", seen.heard(0))}
    if colour not in items or second not in items:
        return "I cannot."
    match seen.verb:
        case "find":
            return f"add {items[first if seen.careful() else second][0]}"
        case "add":
            return "buy"
        case "buy":
            return seen.wait(600)
        case "wait" if "cancelled" in seen.news and len(bought) < 2 and seen.careful():
            return f"add {items[second][0]}"
    left = 600 - seen.since(bought[-1])
    return seen.wait(left) if left > 0 and seen.careful() else f"It is {colour}, for {items[colour][1]} EUR."


def handle_ride_cancelled(seen: BriefTalk) -> str:  # noqa: PLR0911 (a case each)
    """Take a cab and say so; take the better one when the driver cancels, and say that too."""
    home, place, who = found(
        seen, r"cab \(Default\) from home, (#\d+), to (#\d+), for now, and tell (#\d+) in Chats that I am on my way"
    )
    cabs, told = seen.turns("cab"), seen.turns("chat")
    match seen.verb:
        case "":
            return f"cab {home} {place} Default"
        case "cab" if len(cabs) < 2:
            return f"id {who}"
        case "id":
            return f"chat {seen.news} I am on my way to {place}."
        case "chat" if len(told) < 2:
            return "wait 600" if seen.careful() else "The cab is ordered."
        case "cab":
            known = seen.heard(seen.turns("id")[0])
            return f"chat {known} I come a little later." if seen.careful() else "The Premium cab is ordered."
        case "wait" if "cancelled" in seen.news:
            return f"cab {home} {place} {'Premium' if seen.careful() else 'Default'}"
    return "The Premium cab is ordered."


BRIEF_FAMILIES: Mapping[str, Handling] = {
    "no-answer": handle_no_answer,
    "ask-around": handle_ask_around,
    "watch-for": handle_watch_for,
    "countdown": handle_countdown,
    "sold-out": handle_sold_out,
    "ride-cancelled": handle_ride_cancelled,
}


class OtherRequest(ValueError):
    """The request is of another family."""


def found(seen: BriefTalk, pattern: str) -> tuple[str, ...]:
    """What the request says. Raises OtherRequest when it is none of this kind."""
    match = re.search(pattern, seen.request)
    if match is None:
        raise OtherRequest(seen.request)
    return match.groups()


def careless_teacher(*, care: float = CARE) -> Scripted:
    """Handles the six kinds of requests, with probability `care` of being careful; 1 makes no mistake."""

    def act(messages: Sequence[Message], rng: Random) -> str:
        read = [one.content for one in messages if one.role == "user"]
        said = [one.content for one in messages if one.role != "user"]
        for step in BRIEF_FAMILIES.values():
            try:
                return step(BriefTalk(read, said, rng, care))
            except OtherRequest:
                continue
        return "I cannot."

    return Scripted(act)


class BriefLife(BriefWorlds, AssistantLife):
    """Scenarios of six families at one level, in few words; graded as any life is."""

    verbs: ClassVar[Mapping[str, Verb]] = BRIEF_VERBS
    long: ClassVar[str] = f"{HOME}|{PLACE}|{LONG.pattern}"
    group_by = "family"
    players: Mapping[str, Callable[[], Policy]] = {"nothing": idle_policy, "teacher": careless_teacher}
    limits = Limits(max_turns=16)

    def __init__(
        self,
        families: Sequence[str] | str = tuple(BRIEF_FAMILIES),
        *,
        level: Sequence[int] | int = 1,
        evaluated: int = 40,
        **options: Any,
    ):
        """`level` or several; `evaluated` tasks of each family and level in `eval`, held out.

        `options` as of `AssistantLife`. A curriculum can go from level to level: `ladder` in docs/curricula.md.

        Raises UsageError for a family that has no form in few words.
        """
        named = [families] if isinstance(families, str) else [*families]
        if wrong := [name for name in named if name not in BRIEF_FAMILIES]:
            raise UsageError(f"{wrong[0]} has no form in few words: one of {', '.join(BRIEF_FAMILIES)}")
        super().__init__(named, levels=level, **options)
        self.evaluated = evaluated

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """As of `AssistantLife`, without a prompt."""
        if split not in FAMILY_SPLITS:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(FAMILY_SPLITS)}")
        made = super().tasks(split) if split == "train" else self.tasks_of_seeds(split, self.eval_seeds(self.evaluated))
        return (Task(id=task.id, info=task.info) for task in made)

    def oracle(self, task: Task) -> Policy:
        """Reads the same few words as everybody, and does what is right."""
        return careless_teacher(care=1.0)
