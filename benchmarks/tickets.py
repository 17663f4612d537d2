"""Messages of customers: which thing is the complaint about? A pretrained model does it in part, after examples.

Most messages also praise something else. Things, phrases, numbers and order are drawn.
No message of `eval` is one of `train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import ClassVar

from wanderlust.agent import release_conversation
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.local.smollm2 import fetch_smollm2
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Completion, Message, Task, Tool, assistant, system, user

RULES = "A customer writes. Name the thing that the complaint is about. Answer with one word."
COMPLAINTS = (
    *("I was charged twice for the {thing}", "the invoice for the {thing} shows the wrong amount"),
    *("I still have no receipt for the {thing}", "the {thing} has not arrived", "the {thing} came {number} days late"),
    *("the courier left the {thing} at the wrong house", "the {thing} was sent to my old address"),
    *("I want to send the {thing} back", "the {thing} has the wrong colour", "the {thing} does not switch on"),
    *(
        "the {thing} makes a loud noise",
        "the {thing} broke after {number} days",
        "the manual of the {thing} is missing",
    ),
)
PRAISE = (
    *("the {thing} works well", "the {thing} arrived on time", "I want to keep the {thing}", "I like the {thing}"),
    *("the price of the {thing} was fair", "the {thing} came after {number} days", "the {thing} is easy to use"),
)
THINGS = (
    *("lamp", "kettle", "printer", "speaker", "camera", "clock", "heater", "radio", "scale", "toaster"),
    *("drill", "fan", "keyboard", "mixer", "monitor", "phone", "shaver", "tablet", "vacuum", "watch"),
)
OPENINGS = ("", "Hello, ", "Dear team, ", "Hi, ", "Good morning, ")
SHAPES = (
    "{complaint}.",
    "{praise}, but {complaint}.",
    "{complaint}, although {praise}.",
    "{praise}. Still, {complaint}.",
    "{complaint}. Otherwise, {praise}.",
)
EVAL, EXAMPLES = 300, 6


def message(rng: Random) -> tuple[str, str]:
    """A message and the thing that it complains about."""
    thing, other = rng.sample(THINGS, 2)
    complaint = rng.choice(COMPLAINTS).format(thing=thing, number=rng.randrange(2, 30))
    praise = rng.choice(PRAISE).format(thing=other, number=rng.randrange(2, 30))
    return rng.choice(OPENINGS) + rng.choice(SHAPES).format(complaint=complaint, praise=praise), thing


def read(completion: str) -> str:
    """The answer without case, white space and full stop."""
    return completion.strip().strip(".").lower()


def right(completion: str, answer: str) -> float:
    """1 for the department and nothing else."""
    return float(read(completion) == answer)


def task(split: str, number: int) -> Task:
    """Message `number` of a split."""
    text, thing = message(Random(f"tickets/{split}/{number}"))
    return Task(id=f"{split}-{number}", prompt=(system(RULES), user(text)), answer=thing)


class Tickets(SingleTurnEnvironment):
    """Endless training messages, and EVAL held-out ones."""

    rubric: ClassVar[Rubric] = Rubric(right)
    extract = staticmethod(read)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The messages of a split; those of `eval` are not in `train`."""
        held_out = [task("eval", n) for n in range(EVAL)]
        if split != "train":
            yield from held_out
            return
        asked = {one.prompt for one in held_out}
        yield from (one for one in (task("train", n) for n in count()) if one.prompt not in asked)


class Prompted:
    """A local policy that is shown examples before each message."""

    label = "SmolLM2-135M-Instruct after six examples"

    def __init__(self, policy: LocalPolicy):
        pairs = [message(Random(f"tickets/examples/{n}")) for n in range(EXAMPLES)]
        self.policy = policy
        self.examples = tuple(one for text, thing in pairs for one in (user(text), assistant(thing)))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer after the examples."""
        return await self.policy.complete([messages[0], *self.examples, *messages[1:]], tools, key=key)

    def release(self, key: str) -> None:
        """As the policy's."""
        release_conversation(self.policy, key)

    def greedy(self) -> Prompted:
        """The same at temperature 0."""
        return Prompted(self.policy.greedy())


def smollm2() -> LocalPolicy:
    """SmolLM2-135M-Instruct at temperature 1."""
    return LocalPolicy.of(*load_pretrained(fetch_smollm2()), SamplingOptions(max_tokens=8), seed=0)
