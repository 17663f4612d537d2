"""Games of the official engine, of anybody, from a folder: the environment `arc`; extra `arc`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from random import Random

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric, metric
from wanderlust.types import Message, Policy, Task
from wanderlust_grids.cells import FRAME
from wanderlust_grids.environment import VIEWS, actions, completion, explored, play_game, score, unread
from wanderlust_grids.official_folder import GameFiles, find_games
from wanderlust_grids.official_process import OfficialProcess


def draw_action(messages: Sequence[Message], rng: Random) -> str:
    """One of the actions that the rules name; clicks at any pixel."""
    names = messages[0].content.partition("one action: ")[2].partition(".")[0].split(", ")
    name = rng.choice(names)
    return f"click {rng.randrange(FRAME)} {rng.randrange(FRAME)}" if name.startswith("click") else name


class OfficialGames(Environment):
    """Games of an `environment_files` folder of the official ARC-AGI-3 toolkit, each played in a sandbox of its own.

    `FOLDER/train` and `FOLDER/eval` are the splits where they exist; else all games are of `eval`. The reward is the
    official score with the baselines of each game's metadata, and levels alone are reset, as in official competitions.
    A level may take five times the actions of its baseline, and 40 at any rate.

    Args:
        folder: The folder; its games' `metadata.json` need `baseline_actions`.
        view: `text` for objects and changes, `image` for a PNG of each frame, or `both`.
        levels: Levels of a game that are played; 0 for all.
    """

    limits = Limits(max_turns=5000)
    rubric = Rubric(score, metric(completion), metric(actions), metric(unread), metric(explored))
    group_by = "game"
    players: Mapping[str, Callable[[], Policy]] = {"random": partial(Scripted, draw_action)}

    def __init__(self, folder: str, view: str = "text", *, levels: int = 0):
        if view not in VIEWS:
            raise UsageError(f"there is no view {view!r}: one of {', '.join(VIEWS)}")
        if levels < 0:
            raise UsageError(f"levels={levels}: 0 for all, or how many")
        self.folder, self.view, self.levels = Path(folder), view, levels

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The games of a split. Raises UsageError where there are none, or one has no baseline."""
        for one in self._games(split):
            yield Task(id=f"arc-{one.id}", info={"game": one.id, "split": split})

    async def run(self, episode: Episode) -> None:
        """One game, in a sandbox."""
        info = episode.task.info
        files = next((one for one in self._games(info["split"]) if one.id == info["game"]), None)
        if files is None:
            raise UsageError(f"{self.folder} has no game {info['game']} any more")
        episode.state["game"] = files.id
        game = await OfficialProcess.open(files, seed=episode.seed)
        try:
            baseline = files.baselines[: self.levels or None]
            await play_game(episode, game, baseline=baseline, view=self.view)
        finally:
            await game.close()

    def _games(self, split: str) -> list[GameFiles]:
        if split not in self._splits:
            raise UsageError(
                f"{self.folder} has no split {split!r}, but {', '.join(self._splits)}: put games into "
                f"{self.folder / split}"
            )
        games = self._splits[split]
        bare = next((one for one in games if not one.baselines), None)
        if bare is not None:
            raise UsageError(f"{bare.folder / 'metadata.json'} has no baseline_actions, which the score needs")
        return games

    @cached_property
    def _splits(self) -> dict[str, list[GameFiles]]:
        """The games by split."""
        if not self.folder.is_dir():
            raise UsageError(f"there is no folder {self.folder}")
        folders = {name: self.folder / name for name in ("train", "eval") if (self.folder / name).is_dir()}
        return {name: find_games(one) for name, one in (folders or {"eval": self.folder}).items()}
