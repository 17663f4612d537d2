"""Sixteen words, four hidden groups of four: a puzzle in the manner of Connections, with groups of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Policy, Task, system, user

MAX_MISTAKES = 4
"""Wrong groups that end the game."""
MAX_ANSWERS = 16
"""Most answers in one game."""
GROUP_FIELD = XmlFields("group").field("group")
ONE_AWAY_REPLY, WRONG_REPLY = WRONG_REPLIES = ("Wrong, but three of them belong together.", "Wrong.")
CONNECTIONS_RULES = (
    "Sixteen words hide four groups of four words that have something in common. Name one group at a time: "
    "<group>one, two, three, four</group>. Four wrong groups end the game. Some words seem to fit in several groups."
)
WORD_GROUPS: Mapping[str, str] = {
    "trees": "oak elm ash pine willow birch cedar palm maple beech",
    "parts of a hand": "palm thumb knuckle wrist nail finger",
    "parts of a ship": "hull mast deck keel bow rudder stern anchor",
    "tools": "hammer saw drill file plane wrench chisel level",
    "colours": "orange violet rose olive amber scarlet teal coral",
    "flowers": "rose violet lily daisy tulip iris poppy orchid",
    "fruit": "orange date lime plum fig peach olive pear",
    "birds": "crane swift robin finch kite heron jay swallow",
    "building machines": "crane drill digger mixer roller loader",
    "fish": "sole perch bass pike ray carp trout cod",
    "parts of a shoe": "sole heel tongue lace buckle toe",
    "musical instruments": "bass horn drum organ harp triangle flute viola",
    "metals": "iron lead tin copper zinc nickel silver gold",
    "coins": "penny nickel dime quarter crown pound shilling",
    "things with teeth": "comb saw zip gear rake shark",
    "things with keys": "piano organ map lock laptop typewriter",
    "dances": "tango swing waltz salsa polka twist jive foxtrot",
    "sauces": "salsa pesto mayo ketchup gravy tartar",
    "units": "pound foot mile ounce yard stone inch acre",
    "parts of the body": "foot calf chest temple heel nail lip shin",
    "young animals": "calf foal kid cub lamb pup fawn kitten",
    "shapes": "square circle triangle oval cube cone star ring",
    "planets": "mercury venus earth mars saturn neptune jupiter uranus",
    "Roman gods": "mercury venus mars saturn neptune juno vulcan minerva",
    "weather": "hail fog snow storm frost drizzle sleet thunder",
    "ways to greet": "hail wave nod bow hello salute",
    "ways to walk": "stroll march stride amble saunter plod trudge",
    "months": "march may april june july august",
    "gems": "ruby pearl opal jade amber emerald topaz garnet",
    "programming languages": "ruby python java swift rust pearl basic",
    "snakes": "python cobra boa viper adder mamba",
    "drinks": "java cider punch port tea cocoa ale water",
    "blows": "punch slap jab hook hammer swing kick",
    "chess": "pawn bishop knight castle queen check board mate",
    "clergy": "bishop priest vicar deacon abbot monk",
    "rooms": "hall kitchen study attic cellar pantry",
    "ways to look": "watch study stare glance peer gaze",
    "things on a wrist": "watch bracelet cuff bangle sleeve",
}


def unambiguous_words(name: str, others: Sequence[str]) -> list[str]:
    """The words of a group that are in none of the others."""
    taken = {word for other in others for word in WORD_GROUPS[other].split()}
    return [word for word in WORD_GROUPS[name].split() if word not in taken]


def make_puzzle(key: str) -> dict[str, list[str]]:
    """Four groups of four words by name; every word fits in one of them only. Equal keys, equal puzzles."""
    rng = Random(f"connections/{key}")
    while True:
        names = rng.sample(sorted(WORD_GROUPS), 4)
        words = {name: unambiguous_words(name, [other for other in names if other != name]) for name in names}
        if all(len(fits) >= 4 for fits in words.values()):
            return {name: sorted(rng.sample(fits, 4)) for name, fits in words.items()}


def parse_group(text: str) -> list[str]:
    """The words of the last group in a message, in alphabetical order; none when there is none."""
    return sorted({*re.findall(r"\w+", GROUP_FIELD(text.lower()) or "")})


def judge_group(group: list[str], left: Mapping[str, list[str]], named: Sequence[list[str]]) -> str:
    """The name of a group that was found, or the reply to a wrong one."""
    if len(group) != 4 or not {*group} <= {word for words in left.values() for word in words}:
        return "Name four of the words that are left, inside <group> and </group>."
    if group in named:
        return "You named that group before."
    name, most = max(((name, len({*group} & {*words})) for name, words in left.items()), key=lambda pair: pair[1])
    return name if most == 4 else ONE_AWAY_REPLY if most == 3 else WRONG_REPLY


def share_found(state: Mapping[str, Any]) -> float:
    """The share of the groups that were found."""
    return len(state["found"]) / 4


def flawless(state: Mapping[str, Any]) -> float:
    """1 when all groups were found without a mistake."""
    return float(len(state["found"]) == 4 and not state["mistakes"])


class Connections(Environment):
    """Connections: sixteen words, four hidden groups of four.

    The state has the names of the groups `found`, and the number of `mistakes`. A group that was named before, or that
    is not four words of the puzzle still there, is refused and no mistake; a game has at most 16 answers.
    """

    limits = Limits(max_turns=MAX_ANSWERS)
    rubric = Rubric(Reward(share_found, name="found"), Reward(flawless, 0.2))

    def tasks(self, split: str = "train") -> list[Task]:
        """A thousand generated puzzles to train on, two hundred others for `eval`."""
        tasks = []
        for key in (f"{split}-{n}" for n in range(200 if split == "eval" else 1000)):
            groups = make_puzzle(key)
            words = sorted(word for group in groups.values() for word in group)
            Random(f"connections/{key}/order").shuffle(words)
            prompt = (system(CONNECTIONS_RULES), user(", ".join(words)))
            tasks.append(Task(id=f"connections-{key}", prompt=prompt, answer=groups))
        return tasks

    def oracle(self, task: Task) -> Policy:
        """Knows the groups."""
        return Scripted([f"<group>{', '.join(group)}</group>" for group in task.answer.values()])

    async def run(self, episode: Episode) -> None:
        """One puzzle."""
        state, observation, named = episode.state, episode.task.prompt, list[list[str]]()
        state.update(found=[], mistakes=0)
        left = dict(episode.task.answer)
        while left and state["mistakes"] < MAX_MISTAKES:
            group = parse_group((await episode.agent.act(*observation)).content)
            reply = judge_group(group, left, named)
            named.append(group)
            if reply in left:
                state["found"].append(reply)
                del left[reply]
                reply = f"Right: {reply}."
            elif reply in WRONG_REPLIES:
                state["mistakes"] += 1
            rest = {word for words in left.values() for word in words}
            listed = ", ".join(word for word in episode.task.prompt[-1].content.split(", ") if word in rest)
            observation = (user(f"{reply} Mistakes left: {MAX_MISTAKES - state['mistakes']}. Words left: {listed}"),)
