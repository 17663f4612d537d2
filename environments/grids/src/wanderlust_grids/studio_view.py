"""Grid games for the page: every frame of a play, a branch from any moment, and first plays of people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.environment import Environment
from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import BRANCH_STAGE, HUMAN_POLICY, STORE_FILE
from wanderlust.studio.games import rollout_saver
from wanderlust.studio.requests import (
    json_response,
    request_body,
    requested_branch,
    studio_state,
)
from wanderlust.studio.viewers import GameSetting, ShownRollout
from wanderlust.tasks.registry import ResolvedEnvironment, environment_name, resolve_environment
from wanderlust.types import Message, Rollout
from wanderlust_grids.cells import FRAME
from wanderlust_grids.drawing import PALETTE, Frame
from wanderlust_grids.environment import TASK_PREFIX, Grids, action_text
from wanderlust_grids.generation import GridGame
from wanderlust_grids.replay import answers_of, game_of_task, replay_answers

MAX_MOMENTS = 5_000
"""Of a play that are shown."""
MAX_PERSON_CHARS = 40
CONSENT = (
    "Your actions in this game are stored on this computer as a first play, under the name that you choose. Whoever "
    "can read the folder of its runs can read them. They may be counted in a baseline of people, which says how many "
    "actions a level took. Times are not part of it. You can stop at any moment: what you have played until then is "
    "stored. To take it back, delete the run's folder."
)
"""What a person agrees to before a first play is recorded."""


def grid_record(game: GridGame, answers: Iterable[str], *, levels: int, over: bool) -> dict[str, Any]:
    """The moments of a play as JSON data; rows of pixels that are equal are sent once.

    The shortest solutions stand in it once the play is over: whoever plays must not see them.
    """
    rows: dict[Frame, int] = {}
    frames: dict[Frame, int] = {}
    pictures: list[list[int]] = []
    moments = []
    for one in islice(replay_answers(game, answers), MAX_MOMENTS):
        frame = one.seen.frame
        if frame not in frames:
            frames[frame] = len(frames)
            lines = [frame[start : start + FRAME] for start in range(0, len(frame), FRAME)]
            pictures.append([rows.setdefault(line, len(rows)) for line in lines])
        moments.append(
            {
                "frame": frames[frame],
                "level": one.seen.levels_completed,
                "state": str(one.seen.state),
                "action": None if one.action is None else action_text(one.action),
                "actions": one.actions,
            }
        )
    return {
        "palette": PALETTE,
        "rows": ["".join(f"{pixel:x}" for pixel in row) for row in rows],
        "frames": pictures,
        "moments": moments,
        "available": list(game.actions),
        "levels": levels,
        "optimum": list(game.optimum[:levels]) if over else None,
    }


def answers_in(messages: Iterable[Message], opening: Sequence[str] = ()) -> list[str]:
    """The answers of a game in progress."""
    return [*opening, *(message.content for message in messages if message.role == "assistant")]


def is_first_play(root: Path, person: str, task_id: str) -> bool:
    """Whether no stored game below `root` is this person's in this task."""
    for store in root.glob(f"play-grids*/{STORE_FILE}"):
        try:
            with closing(load_run(store.parent)) as run:
                if any(row.state.get("person") == person and row.task.id == task_id for row in run.rollouts):
                    return False
        except (OSError, StoreError):
            continue  # a damaged store has no play that could be counted
    return True


def with_person(setting: GameSetting, person: Any, root: Path) -> GameSetting:
    """A game that is recorded as a first play, with the person's consent; without a person as it is.

    Raises UsageError for another environment, a bad name, and a game that the person has played.
    """
    if not person:
        return setting
    name = person.strip() if isinstance(person, str) else ""
    if not name or len(name) > MAX_PERSON_CHARS or not name.isprintable():
        raise UsageError(f"a person's name is 1 to {MAX_PERSON_CHARS} printable characters")
    if not isinstance(setting.env, Grids):
        raise UsageError("first plays are recorded of grids alone")
    if not is_first_play(root, name, setting.task.id):
        raise UsageError(f"{one_line(name)} has played this game: no second play is recorded as a first one")
    state = {"person": name, "first_play": True, "consent": CONSENT}
    return replace(setting, person=name, save=_adding(setting.save, state))


def _adding(save: Callable[[Rollout], Any], state: Mapping[str, Any]) -> Callable[[Rollout], Any]:
    def saved(played: Rollout) -> Any:
        played.state = {**played.state, **state}
        return save(played)

    return saved


def grid_branch(resolved: ResolvedEnvironment, answers: Sequence[str], moment: Any, **about: Any) -> GameSetting:
    """Make a game by hand that goes on after the first `moment` answers. Raises UsageError."""
    env = resolved.env
    if not isinstance(env, Grids):
        raise UsageError(f"{resolved.name} is no game of grids: there is nothing to go on from")
    if type(moment) is not int or not 0 <= moment <= len(answers):
        raise UsageError(f"say from where: n is 0 to {len(answers)} answers")
    return GameSetting(name=resolved.name, env=env.continued(answers[:moment]), seat=env.seats[0], **about)


def get_session_grid(request: Request) -> Response:
    """The frames of a game in progress."""
    return json_response(session_grid(*_game(request)))


def _game(request: Request) -> tuple[GameSetting, list[Message], bool]:
    """A game's setting, its messages until now, and whether it is over."""
    games = studio_state(request).games
    return games.read(
        str(request.path_params["session"]), lambda session: (session.setting, [*session.messages], session.over)
    )


def session_grid(setting: GameSetting, messages: Sequence[Message], over: bool) -> dict[str, Any]:
    """The frames of a game as it stands. Raises UsageError for a game that has none."""
    if not isinstance(setting.env, Grids):
        raise UsageError("this game has no frames")
    answers = answers_in(messages, setting.env.opening)
    return grid_record(game_of_task(setting.task.id), answers, levels=setting.env.levels, over=over)


async def post_session_branch(request: Request) -> Response:
    """Begin a second game that goes on from a moment of one in progress."""
    body, here = await request_body(request), studio_state(request)

    def begun() -> dict[str, Any]:
        setting, messages, _ = _game(request)
        env = setting.env
        answers = answers_in(messages, env.opening if isinstance(env, Grids) else ())
        resolved = resolve_environment(setting.name)
        settings = {"env": environment_name(resolved.target), "policy": HUMAN_POLICY, BRANCH_STAGE: setting.name}
        save = rollout_saver(here.plays_folder, resolved, name="branch-play-grids", settings=settings)
        about = {"task": setting.task, "seed": setting.seed, "save": save}
        return {"session": here.session(here.games.begin(grid_branch(resolved, answers, body.get("n"), **about)))}

    return json_response(await run_in_threadpool(begun))


async def post_rollout_branch(request: Request) -> Response:
    """Begin a game that goes on from a moment of a stored rollout."""
    body = await request_body(request)

    def begun() -> dict[str, Any]:
        here, (shown, resolved, save) = studio_state(request), requested_branch(request, HUMAN_POLICY)
        setting = grid_branch(
            resolved,
            answers_of(shown.rollout),
            body.get("n"),
            task=shown.rollout.task,
            seed=shown.rollout.seed,
            since={"run": request.path_params["key"], "rollout": shown.id, "n": body.get("n")},
            save=save,
        )
        return {"session": here.session(here.games.begin(setting))}

    return json_response(await run_in_threadpool(begun))


class GridViewer:
    """Grid games as the studio's part `grid`."""

    part = "grid"

    def shows(self, rollout: Rollout) -> bool:
        """Whether it is of a grid game that came to its end."""
        return rollout.task.id.startswith(TASK_PREFIX) and "level_actions" in rollout.state

    def view(self, shown: ShownRollout) -> dict[str, Any]:
        """The frames of a stored play."""
        game, levels = game_of_task(shown.rollout.task.id), shown.rollout.state.get("levels")
        count = levels if type(levels) is int and 1 <= levels <= len(game.levels) else len(game.levels)
        return grid_record(game, answers_of(shown.rollout), levels=count, over=True)

    def offer(self) -> dict[str, Any]:
        """What a person agrees to before a first play."""
        return {"consent": CONSENT}

    def hides_info(self, env: Environment) -> bool:
        """That of grid games names the rules that are to be found out."""
        return isinstance(env, Grids)

    def prepare(self, setting: GameSetting, body: Mapping[str, Any], folder: Path) -> GameSetting:
        """A game for which a person is named is recorded as a first play."""
        return with_person(setting, body.get("person"), folder)

    def routes(self) -> Sequence[Route]:
        """The frames of a game in progress, and branches."""
        return (
            Route("/api/play/{session}/grid", get_session_grid),
            Route("/api/play/{session}/grid/branch", post_session_branch, methods=["POST"]),
            Route("/api/runs/{key}/rollouts/{id}/grid/branch", post_rollout_branch, methods=["POST"]),
        )
