"""Where training games start: the choice follows from what was observed, and goes where there is something to learn."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wanderlust.environments.tictactoe import TicTacToe, tictactoe_teacher
from wanderlust.environments.tictactoe.rules import board_after
from wanderlust.environments.tictactoe.teacher import StartPosition, StartPositions
from wanderlust.runner.engine import rollouts
from wanderlust.types import Group, Policy, Score, Task


def play(tasks: Sequence[Task], policy: Policy | None = None) -> list[Group]:
    async def go() -> list[Group]:
        async with rollouts(TicTacToe(), tasks, policy or tictactoe_teacher(0.5), group_size=4) as stream:
            return sorted([g async for g in stream], key=lambda g: g.index)

    return asyncio.run(go())


def observed(starts: StartPositions, steps: int) -> StartPositions:
    for step in range(steps):
        for group in play(starts.next(step, 12)):
            starts.observe(group)
    return starts


def board(task: Task) -> str | None:
    return task.info.get("board") or (board_after(task.info["moves"]) if "moves" in task.info else None)


def boards(tasks: Sequence[Task]) -> list[str | None]:
    return [board(task) for task in tasks]


def test_the_first_step_plays_whole_games_and_later_ones_mostly_from_positions() -> None:
    starts = observed(StartPositions(seed=1), 1)
    assert boards(StartPositions(seed=1).next(0, 12)) == [None] * 12
    late = [board for board in boards(starts.next(1, 12)) if board is not None]
    assert len(late) == len(set(late)) == 8
    assert all(board.count("X") in (board.count("O"), board.count("O") - 1) for board in late)


def test_opponents_play_perfectly_at_first_and_grow_weaker() -> None:
    starts = observed(StartPositions(seed=1, ramp=4), 1)
    most = [max(task.info["random"] for task in starts.next(step, 12)) for step in (0, 2, 4, 6)]
    assert most[0] == 0
    assert 0 < most[1] <= 0.5 < most[2] <= 1
    assert 0.5 < most[3] <= 1


def test_what_was_said_before_a_start_is_known_or_left_out() -> None:
    def count(bare: float) -> tuple[int, int]:
        tasks = observed(StartPositions(seed=1, bare=bare), 1).next(1, 12)
        return sum("moves" in task.info for task in tasks), sum("board" in task.info for task in tasks)

    assert (count(0.0), count(1.0)) == ((8, 0), (0, 8))


def test_a_start_is_the_conversation_of_a_game_that_came_there() -> None:
    starts = StartPositions(seed=1)
    games = [r for g in play(starts.next(0, 12)) for r in g.rollouts if not r.state["invalid"]]
    starts = observed(StartPositions(seed=1), 1)
    talks = [tuple(m.content for m in game.trajectory.messages) for game in games]
    late = [task for task in starts.next(1, 12) if "moves" in task.info]
    for group in play(late):
        for rollout in group.rollouts:
            first = [m.content for m in rollout.trajectory.turns[0].observation]
            assert any(talk[: len(first)] == tuple(first) for talk in talks)
            given = rollout.state["given"]
            assert rollout.state["moves"][:given] == group.task.info["moves"]
            assert len(rollout.state["moves"]) > given


def test_equal_states_and_observations_give_equal_choices() -> None:
    starts = observed(StartPositions(seed=2), 3)
    saved = StartPositions(seed=2)
    saved.restore(starts.state())
    assert saved.state() == starts.state()
    for other in (saved, observed(StartPositions(seed=2), 3)):
        assert other.next(3, 12) == observed(StartPositions(seed=2), 3).next(3, 12)
    assert boards(observed(StartPositions(seed=3), 3).next(3, 12)) != boards(saved.next(3, 12))


def test_positions_that_games_run_into_and_could_go_better_are_chosen_most() -> None:
    starts = StartPositions(seed=0, best=1.2)
    games = [["O2", "X0", "O1"], ["X0", "O1"], ["O0"], ["X7", "O6"]]
    names = [board_after(moves) for moves in games]
    for moves, reach, regret in zip(games, (1.0, 1.0, 0.1, 0.0), (0.5, 0.0, 0.5, 0.5), strict=True):
        at = StartPosition(moves=moves, answers=["said"], reach=reach, regret=regret, worth=1.2, started=3)
        starts.positions[board_after(moves)] = at
    chosen: Counter[str | None] = Counter()
    for step in range(300):
        chosen.update(boards(starts.next(step, 2)))
        for name, reach in zip(names, (1.0, 1.0, 0.1, 0.0), strict=True):
            starts.positions[name].reach = reach
    assert chosen[names[0]] > 3 * chosen[names[2]] > 0
    assert chosen[names[2]] > chosen[names[1]] > 0
    assert chosen[names[3]] == 0


def test_what_games_no_longer_run_into_fades() -> None:
    starts = observed(StartPositions(seed=4), 1)
    before = {board: at.reach for board, at in starts.positions.items()}
    starts.next(1, 12)
    assert {board: at.reach for board, at in starts.positions.items()} == {
        b: 0.9 * reach for b, reach in before.items()
    }


def test_regret_is_what_the_best_sibling_had_more_than_the_policy_alone() -> None:
    starts = observed(StartPositions(seed=5), 1)
    task = next(task for task in starts.next(1, 12) if board(task))
    group = play([task])[0]
    for rollout, reward in zip(group.rollouts, (0.2, 0.2, 0.7, 1.2), strict=True):
        rollout.trajectory.score = Score(reward=reward)
    for rollout in group.rollouts[2:]:
        rollout.trajectory.turns[0] = replace(rollout.trajectory.turns[0], finish="not_sampled")
    starts.observe(group)
    at = starts.positions[str(board(task))]
    assert (round(at.regret, 6), round(at.worth, 6), at.started, starts.best) == (1.0, 0.2, 1, 1.2)
