"""Grid games whose rules nobody is told, scored by how few actions a player needs: the environment `grids`."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import PerRolloutPolicy, RolloutKey, Scripted
from wanderlust.rubrics.rubric import Reward, RewardResult, Rubric, metric
from wanderlust.tasks.private import read_secret
from wanderlust.types import IMAGE_MARK, Completion, Message, Policy, Task, Tool, assistant, system, user
from wanderlust_grids.baselines import read_baselines
from wanderlust_grids.cells import CLICK, DOWN, FRAME, INTERACT, LEFT, RESET, RIGHT, UNDO, UP
from wanderlust_grids.drawing import pixel_of, png
from wanderlust_grids.game import GameState, GridAction, GridSession, Observation
from wanderlust_grids.generation import LEVELS, GridGame, game_keys, make_game, mechanics_of_game
from wanderlust_grids.learner import Learner, read_weights
from wanderlust_grids.players import PLAYERS, GridPlayer
from wanderlust_grids.score import game_score
from wanderlust_grids.view import describe, describe_change

NAMES = {RESET: "reset", UP: "up", DOWN: "down", LEFT: "left", RIGHT: "right", INTERACT: "act", UNDO: "undo"}
NUMBERS = {name: number for number, name in NAMES.items()}
ACTION_PATTERN = re.compile(
    r"\b(?:(reset|up|down|left|right|act|undo)|click\s+(\d{1,2})\s*,?\s*(\d{1,2}))\b", re.IGNORECASE
)
VIEWS = ("text", "image", "both")
RULES = (
    "You play a game on a screen of 64 x 64 pixels. Nobody tells you its rules or its goal: find out. It has {levels} "
    "levels, each harder than the one before. Use few actions. Answer with one action: {actions}. x grows to the "
    "right, y downwards. reset begins the level again."
)
TASK_PREFIX = "grids-"
MAX_ACTIONS_FACTOR = 5
"""Times the actions of a level's shortest solution, after which the game ends."""
MIN_LEVEL_ACTIONS = 40
"""That a level may take at any rate."""
GAMES = {"train": 1000, "eval": 200}


def read_action(text: str) -> GridAction | None:
    """The last action that a text names; None where there is none."""
    found = list(ACTION_PATTERN.finditer(text))
    if not found:
        return None
    name, x, y = found[-1].groups()
    if name:
        return GridAction(number=NUMBERS[name.lower()])
    return GridAction(number=CLICK, x=int(x), y=int(y)) if max(int(x), int(y)) < FRAME else None


def action_text(action: GridAction) -> str:
    """An action as a player writes it."""
    return f"click {action.x} {action.y}" if action.number == CLICK else NAMES[action.number]


def score(state: Mapping[str, Any]) -> RewardResult:
    """The official score of the game as a share of 1.

    Metrics: actions of the shortest solutions (the ceiling) and of the baseline, in all levels that are played; the
    score with the shortest solutions as baseline; and the share of levels whose baseline is a person's.
    """
    optimum, baseline = state.get("optimum", ()), state["baseline"]
    human = state.get("human_levels", len(baseline))
    metrics = {"baseline_actions": float(sum(baseline)), "human_levels": human / len(baseline)}
    if optimum:
        metrics["optimum_actions"] = float(sum(optimum))
        metrics["against_optimum"] = game_score(state["level_actions"], optimum) / 100
    return RewardResult(value=float(state["score"]) / 100, metrics=metrics)


def completion(state: Mapping[str, Any]) -> float:
    """The share of the levels that were solved."""
    return len(state["level_actions"]) / int(state["levels"])


def actions(state: Mapping[str, Any]) -> float:
    """All actions."""
    return float(state["actions"])


def unread(state: Mapping[str, Any]) -> float:
    """Answers in which no action was found; each counts as an action."""
    return float(state["unread"])


def explored(state: Mapping[str, Any]) -> float:
    """The share of the actions that led to a frame that the game had not shown before."""
    return int(state.get("new_frames", 0)) / max(1, int(state["actions"]))


class PlayedGame(Protocol):
    """A game as an episode plays it, in this process or in another one."""

    @property
    def level_actions(self) -> list[int]:
        """Actions of each solved level."""
        ...

    @property
    def actions(self) -> int:
        """All of them."""
        ...

    async def begin(self) -> Observation:
        """Show the first level."""
        ...

    async def perform(self, action: GridAction) -> Observation:
        """Take an action."""
        ...

    def waste(self) -> None:
        """Count an action that could not be read, or came after a lost level."""
        ...


class OwnGame:
    """A game of ours as an episode plays it: only levels are reset."""

    def __init__(self, game: GridGame):
        self._session = GridSession(game, level_resets=True)
        self.waste = self._session.waste

    @property
    def level_actions(self) -> list[int]:
        """Actions of each solved level."""
        return self._session.level_actions

    @property
    def actions(self) -> int:
        """All of them."""
        return self._session.actions

    async def begin(self) -> Observation:
        """Show the first level."""
        return self._session.begin()

    async def perform(self, action: GridAction) -> Observation:
        """Take an action."""
        return self._session.perform(action)


async def play_game(
    episode: Episode, game: PlayedGame, *, baseline: Sequence[int], view: str, opening: Sequence[str] = ()
) -> None:
    """Play until all levels of the baseline are solved, or one of them has taken too many actions.

    Answers of `opening` are taken before the player is asked for one. The state has what the score needs.
    """
    state, levels, answers = episode.state, len(baseline), iter(opening)
    state.update(levels=levels, unread=0, baseline=list(baseline), level_actions=[], actions=0, score=0.0)
    seen = await game.begin()
    frames = {blake2b(seen.frame, digest_size=8).digest()}
    rules = rules_text(seen.available_actions, levels)
    head: tuple[Message, ...] = (system(rules),)
    observation = screen_message(seen, f"level 1; {describe(seen.frame)}", view)
    try:
        while not _over(game, baseline):
            answer = next(answers, None)
            if answer is None:
                answer, head = (await episode.agent.act(*head, observation)).content, ()
            action, before = read_action(answer), seen
            if action is None:
                state["unread"] += 1
                game.waste()
                observation = user(f"no action was read. {rules}")
                continue
            if seen.state is GameState.GAME_OVER and action.number != RESET:
                game.waste()
            seen = await game.perform(action)
            frames.add(blake2b(seen.frame, digest_size=8).digest())
            observation = screen_message(seen, answer_text(before, seen), view)
    finally:
        done = game.level_actions[:levels]
        state.update(level_actions=done, actions=game.actions, score=game_score(done, baseline))
        state["new_frames"] = len(frames) - 1


def _over(game: PlayedGame, baseline: Sequence[int]) -> bool:
    solved = len(game.level_actions)
    if solved >= len(baseline):
        return True
    most = max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * baseline[solved])
    return game.actions - sum(game.level_actions) >= most


def screen_message(seen: Observation, text: str, view: str) -> Message:
    """What is seen: as text, as an image, or both."""
    if view == "text":
        return user(text)
    link = f"data:image/png;base64,{b64encode(png(seen.frame)).decode()}"
    words = f"{text}\n{IMAGE_MARK}" if view == "both" else IMAGE_MARK
    return Message("user", words, images=(link,))


class FramePolicy:
    """A player of frames as a policy: it plays a session of its own, which goes as that of the episode does."""

    def __init__(self, player: GridPlayer, game: GridGame):
        self._player, self._session = player, GridSession(game, level_resets=True)
        self._seen = self._session.begin()

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The player's next action as text."""
        action = self._player.choose(self._seen)
        self._seen = self._session.perform(action)
        return Completion(message=assistant(action_text(action)))


class Grids(Environment):
    """Interactive games of 64 x 64 pixels in 16 colours: find out the rules, with few actions.

    A task is a game of six levels. `eval` has mechanics that `train` never has. With a secret the games of `eval` are
    others, which nobody can make without it. A level may take five times the actions of its baseline, and 40 at any
    rate. The reward is the score of ARC-AGI-3, with the shortest solutions as baselines unless `baselines` has those of
    people; `completion` is a metric beside it.

    Args:
        levels: Levels of a game that are played.
        view: `text` for objects and changes, `image` for a PNG of each frame, or `both`.
        secret: A file with the owner's secret text. Runs record its name, and never what is in it.
        games: Games of a split; 0 takes its own number.
        baselines: A run of people's first plays, or a JSON file of such baselines; the shortest solutions stand in
            where it has none.
        learner: A file of weights for the player `learner`, in the place of those in this package.
        exploration: Weight of `explored` in the reward, for training: the share of the actions that led to a new frame.

    Example:
        >>> env = Grids()
        >>> task = next(iter(env.tasks("train")))
        >>> len(env.game(task).levels)
        6
    """

    limits = Limits(max_turns=2000)
    rubric = Rubric(score, metric(completion), metric(actions), metric(unread), metric(explored))
    group_by = "mechanics"

    def __init__(
        self,
        levels: int = LEVELS,
        view: str = "text",
        secret: str = "",
        *,
        games: int = 0,
        baselines: str = "",
        learner: str = "",
        exploration: float = 0.0,
    ):
        if not 1 <= levels <= LEVELS:
            raise UsageError(f"levels={levels}: a game has 1 to {LEVELS}")
        if view not in VIEWS:
            raise UsageError(f"there is no view {view!r}: one of {', '.join(VIEWS)}")
        if not isinstance(exploration, int | float) or not 0 <= exploration < inf:
            raise UsageError(f"exploration={exploration!r}: a weight is a number of at least 0")
        self.levels, self.view, self.games = levels, view, games
        if exploration:
            bonus = Reward(explored, weight=exploration)
            self.rubric = Rubric(score, metric(completion), metric(actions), metric(unread), bonus)
        self._secret = read_secret(Path(secret)) if secret else ""
        self._human = read_baselines(Path(baselines)) if baselines else {}
        self.opening: tuple[str, ...] = ()
        """Answers after which its episodes begin."""
        makers = dict(PLAYERS)
        if learner:
            makers["learner"] = partial(Learner, weights=read_weights(Path(learner)))
        self.players = {name: partial(_policy_of, make) for name, make in makers.items()}

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The games of a split; they are made when they are played. Raises UsageError for a split that there is not."""
        if split not in GAMES:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(GAMES)}")
        name = "private" if self._secret and split == "eval" else split
        for key in game_keys(name, self.games or GAMES[split], secret=self._secret):
            yield Task(id=f"{TASK_PREFIX}{key}", info={"mechanics": ", ".join(mechanics_of_game(key))})

    def game(self, task: Task) -> GridGame:
        """The game of a task."""
        return make_game(task.id.removeprefix(TASK_PREFIX))

    def oracle(self, task: Task) -> Policy:
        """Plays the shortest solutions."""
        game, lines = self.game(task), list[str | Message]()
        for level, solution in zip(game.levels, game.solutions, strict=True):
            for action in solution.actions:
                x, y = pixel_of(level.size, action.cell) if action.number == CLICK else (0, 0)
                lines.append(action_text(GridAction(number=action.number, x=x, y=y)))
        return Scripted(lines)

    def continued(self, answers: Sequence[str]) -> Self:
        """The environment whose episodes begin after these answers, which count."""
        twin = copy(self)
        twin.opening = tuple(answers)
        return twin

    def baseline(self, game: GridGame) -> tuple[list[int], int]:
        """The actions of each level that is played that a score is measured by, and how many are a person's."""
        human = self._human.get(game.key, [])[: self.levels]
        return [*human, *game.optimum[len(human) : self.levels]], len(human)

    async def run(self, episode: Episode) -> None:
        """One game, until its levels are solved or one of them has taken too many actions."""
        game = self.game(episode.task)
        baseline, human = self.baseline(game)
        episode.state.update(game=game.key, optimum=list(game.optimum[: self.levels]), human_levels=human)
        if self.opening:
            episode.state["opening"] = list(self.opening)
        await play_game(episode, OwnGame(game), baseline=baseline, view=self.view, opening=self.opening)


def _policy_of(make: Callable[[Random], GridPlayer]) -> Policy:
    """A player of its own for every rollout."""

    def begin(key: RolloutKey) -> Policy:
        return FramePolicy(make(Random("/".join(map(str, key)))), make_game(key.task.removeprefix(TASK_PREFIX)))

    return PerRolloutPolicy(begin)


def rules_text(available_actions: Sequence[int], levels: int) -> str:
    """What a player is told: the actions, and nothing of what they do."""
    names = ["click x y" if number == CLICK else NAMES[number] for number in (*available_actions, RESET)]
    return RULES.format(levels=levels, actions=", ".join(names))


def answer_text(before: Observation, seen: Observation) -> str:
    """What an action brought."""
    if seen.levels_completed > before.levels_completed:
        return f"level {seen.levels_completed + 1}; {describe(seen.frame)}"
    change = describe_change(before.frame, seen.frame)
    return f"game over: only reset goes on; {change}" if seen.state is GameState.GAME_OVER else change
