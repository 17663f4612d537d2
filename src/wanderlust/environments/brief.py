"""A family of a person's life in few words: what a model of a few hundred thousand parameters can learn to live in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from wanderlust.core.contracts import Limits, Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message
from wanderlust.core.types import Task
from wanderlust.environments.life import SPLITS, Life
from wanderlust.environments.life_players import nothing_done
from wanderlust.policies.scripted import Scripted
from wanderlust.worlds.brief import BriefWorlds, Verb

VERBS = {
    "id": Verb(tool="Chats__get_user_id", takes=("user_name",)),
    "chat": Verb(tool="Chats__send_message", takes=("user_id", "content")),
    "read": Verb(tool="Chats__read_conversation", takes=("conversation_id",), given={"limit": 1}, shows="content"),
    "wait": Verb(tool="System__wait_for_notification", takes=("timeout",)),
}


class BriefNoAnswer(BriefWorlds, Life):
    """The scenarios of the family `no-answer` at one level, in few words; graded as any life is."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS
    players: ClassVar[Mapping[str, Callable[[], Policy]]] = {
        "nothing": nothing_done,
        "teacher": lambda: hasty(care=0.75),
    }
    limits = Limits(max_turns=14)

    def __init__(self, *, level: int = 1, evaluated: int = 100, **options: Any):
        """`evaluated` tasks are in the `eval` split, which is held out as that of `Life`; `options` as of Life."""
        super().__init__(["no-answer"], levels=(level,), **options)
        self.evaluated = evaluated

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """As of `Life`, without a prompt."""
        if split not in SPLITS:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(SPLITS)}")
        found = super().tasks(split) if split == "train" else self._tasks(split, range(self.evaluated))
        return (Task(id=task.id, info=task.info) for task in found)

    def oracle(self, task: Task) -> Policy:
        """Reads the same few words as everybody, and does what is right."""
        return hasty(care=1.0)


ASKED = re.compile(
    r"Ask (#\d+) in Chats whether I can have the (.+?) back today\..*? within (\d+) minutes, ask (#\d+) "
)
CLOCK = re.compile(r"(\d+):(\d\d)\n")


def hasty(*, care: float = 0.3) -> Scripted:
    """A teacher for `no-answer` that knows how one asks and waits, and not how long, nor for whom.

    With probability `care` each it waits for the time that is left, ignores who is not meant, and asks the other.
    """
    return Scripted(lambda messages, rng: _next(messages, rng, care))


def _next(messages: Sequence[Message], rng: Random, care: float) -> str:
    read, said = [m.content for m in messages if m.role == "user"], [m.content for m in messages if m.role != "user"]
    request = ASKED.search(read[0])
    if request is None:
        return "I cannot."
    who, thing, minutes, other = request.groups()
    last, news = said[-1] if said else "", read[-1].partition("\n")[2]
    asked = [at for at, line in enumerate(said) if line.startswith("chat")]
    match last.split(" ")[0]:
        case "id":
            return f"chat {news} can I have the {thing} back today?"
        case "read":
            return f"{who} says: {news}"
        case "wait":
            talk = read[asked[0] + 1].partition("\n")[2]
            left = 60 * int(minutes) + _seconds(read[asked[0] + 1]) - _seconds(read[-1])
            return _waited(news, talk, other, left=left, rng=rng, care=care)
        case "chat":
            return f"I asked {other}." if len(asked) > 1 else _wait(60 * int(minutes), rng, care)
    return "" if said else f"id {who}"


def _waited(news: str, talk: str, other: str, *, left: int, rng: Random, care: float) -> str:
    came = news.rpartition(" ")[2] if "message" in news else ""
    if came and (came == talk or rng.random() > care):
        return f"read {came}"
    if left > 0 and rng.random() < care:
        return _wait(left, rng, care)
    return f"id {other}" if rng.random() < care else f"I asked {other}."


def _wait(left: int, rng: Random, care: float) -> str:
    return f"wait {left if rng.random() < care else 30 * rng.randint(1, 12)}"


def _seconds(read: str) -> int:
    found = CLOCK.match(read)
    return 60 * int(found[1]) + int(found[2]) if found else 0
