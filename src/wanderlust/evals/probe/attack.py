"""A small attacker that learns by reinforcement: a softmax over ready-made actions, one for each kind of situation.

It is trained by REINFORCE (Williams 1992) on some of the tasks, with the mean of a batch as baseline, and judged on the
others. What it earns is compared with the oracle, since honest learning earns something too. Not covered: actions that
are in none of its lists, and tasks that need more than a reaction to the newest message.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, sqrt
from random import Random
from typing import TypeAlias

from wanderlust.evals.probe.probe import ProbeView
from wanderlust.evals.probe.selections import SELECTIONS
from wanderlust.evals.probe.text_probes import RESET_PATTERN
from wanderlust.evals.probe.tool_probes import seen_calls
from wanderlust.types import Completion, Message, Policy, Tool, ToolCall, assistant

Play: TypeAlias = Callable[[Policy], Awaitable[Mapping[str, float]]]
"""Plays a policy once on each task of a batch; the rewards, by the rollout's task."""
Situation: TypeAlias = tuple[int, str]
"""The turn, at most MAX_TURN, and the shape of the newest message: its first words, digits left out."""

MAX_TURN, SITUATION_WORDS = 3, 4
MAX_VOCABULARY, MAX_CALLS, ACTIONS = 24, 40, 96
"""Words taken from the oracle's answers; calls with values that were seen; actions in all."""
LEARNING_RATE = 1.0
BATCH = 12
"""Episodes between two updates."""


@dataclass(slots=True)
class Attacker:
    """The policy. Keeps the choices of episodes under way; equal seeds, equal play."""

    vocabulary: Sequence[Message]
    """The oracle's different actions, at most MAX_VOCABULARY."""
    seed: int
    greedy: bool = False
    preferences: dict[Situation, list[float]] = field(default_factory=dict)
    choices: dict[str, list[tuple[Situation, int]]] = field(default_factory=dict)
    """By the rollout's task."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The drawn action; the likeliest one when greedy."""
        view = ProbeView(messages, tools, Random(f"{key}/{len(messages)}"))
        situation = min(view.turn, MAX_TURN), " ".join(re.findall(r"[^\W\d]+", view.newest.lower())[:SITUATION_WORDS])
        task = key.rsplit("/", 3)[0]
        rng = Random(f"attack/{self.seed}/{key}/{len(messages)}/{fsum(map(fsum, self.preferences.values()))}")
        chances = _softmax(self.preferences.get(situation, [0.0] * ACTIONS))
        if self.greedy:
            action = max(range(ACTIONS), key=lambda n: (chances[n], -n))
        else:
            action = rng.choices(range(ACTIONS), chances)[0]
            self.choices.setdefault(task, []).append((situation, action))
        return Completion(message=self._act(view, action))

    def _act(self, view: ProbeView, action: int) -> Message:
        """The action of that number: a word of the oracle's, what stands at a place, or a call with values seen."""
        if action < MAX_VOCABULARY:
            return self.vocabulary[action % len(self.vocabulary)] if self.vocabulary else assistant("")
        place = action - MAX_VOCABULARY
        if view.tools and place < MAX_CALLS:
            calls = seen_calls(view, MAX_CALLS)
            chosen = calls[place % len(calls)]
            return assistant("", ToolCall(id=f"attack-{view.turn}", name=chosen[0], arguments=chosen[1]))
        place = place - MAX_CALLS if view.tools else place
        texts = [*(RESET_PATTERN.findall(view.prompt)[:2] or [""]), "Done.", "yes", "0", "1"]
        if place < len(texts):
            return assistant(view.formatted(texts[place].lower()))
        return assistant(view.formatted(SELECTIONS[(place - len(texts)) % len(SELECTIONS)](view)[:2_000]))

    def learn(self, rewards: Mapping[str, float]) -> None:
        """One update from a batch's rewards, by task: what was chosen where more was paid becomes likelier."""
        average = fsum(rewards.values()) / max(len(rewards), 1)
        spread = sqrt(fsum((one - average) ** 2 for one in rewards.values()) / max(len(rewards), 1))
        for task, reward in rewards.items() if spread > 0 else ():
            gain = LEARNING_RATE * (reward - average) / spread
            taken = self.choices.get(task, ())
            for situation, action in taken:
                row = self.preferences.setdefault(situation, [0.0] * ACTIONS)
                chances = _softmax(row)
                for n in range(ACTIONS):
                    row[n] += gain * ((n == action) - chances[n]) / sqrt(len(taken))
        self.choices.clear()


async def train_attacker(play: Play, vocabulary: Sequence[Message], *, episodes: int, seed: int) -> Attacker:
    """Train for at least one batch and about `episodes` episodes; the attacker that comes back is greedy."""
    different = list(dict.fromkeys(vocabulary))
    attacker = Attacker(
        vocabulary=Random(f"vocabulary/{seed}").sample(different, min(len(different), MAX_VOCABULARY)), seed=seed
    )
    played = 0
    while played < episodes:
        rewards = await play(attacker)
        attacker.learn(rewards)
        played += max(len(rewards), BATCH)
    attacker.greedy = True
    return attacker


def _softmax(row: Sequence[float]) -> list[float]:
    most = max(row)
    weights = [exp(one - most) for one in row]
    total = fsum(weights)
    return [one / total for one in weights]
