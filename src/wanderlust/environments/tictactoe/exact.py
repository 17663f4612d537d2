"""Exact evaluation: every line of play of a deterministic policy, each weighed by its probability.

The policy is asked once in every conversation that it can be led into, not once per board: its answer may depend
on how the game got there. That is at most 1,965 conversations of legal play, after which the shares against *any*
opponent are sums, without sampling noise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from wanderlust.environments.tictactoe.game import AGENT_TURNS as MAX_TURNS
from wanderlust.environments.tictactoe.game import DRAW_VALUE, FORMAT_WEIGHT, INVALID_WEIGHT, WIN_VALUE, move_refusal
from wanderlust.environments.tictactoe.prompts import MoveEvent, Wording, read, wording_named
from wanderlust.environments.tictactoe.rules import (
    EMPTY_BOARD,
    FIXED_OPPONENTS,
    GameOutcome,
    Opponent,
    free,
    game_outcome,
    place_mark,
)
from wanderlust.environments.tictactoe.solver import Shares, solve_against
from wanderlust.environments.tictactoe.teacher import MovePolicy
from wanderlust.errors import PolicyFailure, UsageError, boundary
from wanderlust.types import Message, Policy

Opening: TypeAlias = int | None
"""The cell that O opens on; None when X opens."""
OPENINGS: tuple[Opening, ...] = (None, *range(9))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFigures:
    """Exact shares, from 0 to 1; win, draw and loss sum to 1."""

    win: float
    draw: float
    loss: float
    """Neither won nor drawn: unfinished games are losses."""
    unfinished: float = 0.0
    """The part of `loss` in which the turns ran out."""
    invalid: float = 0.0
    """Games with at least one refused answer."""
    format: float = 1.0
    """Mean over games of the share of well-formed messages."""

    @property
    def reward(self) -> float:
        """Expected training reward."""
        result = WIN_VALUE * self.win + DRAW_VALUE * self.draw
        return result + FORMAT_WEIGHT * self.format + INVALID_WEIGHT * self.invalid

    @classmethod
    def of(cls, shares: Shares) -> ExactFigures:
        """The figures of a scripted player, who never answers wrongly."""
        return cls(**shares._asdict())

    def row(self, policy: str, opponent: str) -> dict[str, Any]:
        """One row of a report."""
        shares = {key: value for key, value in asdict(self).items() if key != "unfinished"}
        return {"policy": policy, "opponent": opponent, **shares, "exact": True, "reward": self.reward}


@dataclass(slots=True, kw_only=True)
class Node:
    """One conversation: the policy's answer there and what can follow. Plain data."""

    board: str
    ended: GameOutcome | Literal["unfinished"] | None = None
    """The end of the game here; None where the policy was asked."""
    refused: bool = False
    well_formed: bool = False
    after: dict[int, Node] = field(default_factory=dict)
    """The next nodes, by O's reply; -1 for a certain one (a refused answer, the end by X's own move)."""


CERTAIN_REPLY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTree:
    """All answers of a policy, by opening. Trees of different openings can be merged; plain data."""

    roots: Mapping[Opening, Node]

    def merged(self, other: PolicyTree) -> PolicyTree:
        """The tree with the openings of both."""
        return PolicyTree(roots={**self.roots, **other.roots})

    def figures(self, opponent: Opponent) -> ExactFigures:
        """Exact figures against `opponent`; X opens half of the games.

        Raises UsageError when an opening that the opponent plays was not evaluated.
        """
        weights: dict[Opening, float] = {None: 0.5}
        weights |= {cell: 0.5 * share for cell, share in opponent(EMPTY_BOARD).items() if share > 0}
        if missing := [opening for opening in weights if opening not in self.roots]:
            raise UsageError(f"openings {missing} were not evaluated: merge the trees first")
        ends = _Ends()
        for opening, weight in weights.items():
            ends.collect(self.roots[opening], weight, opponent)
        return ends.figures()

    def rows(self, policy: str, opponents: Mapping[str, Opponent] = FIXED_OPPONENTS) -> list[dict[str, Any]]:
        """Report rows against each opponent."""
        return [self.figures(opponent).row(policy, name) for name, opponent in opponents.items()]


async def build_policy_tree(
    policy: Policy,
    *,
    wording: str = "compact",
    openings: Sequence[Opening] = OPENINGS,
    concurrency: int = 256,
) -> PolicyTree:
    """Ask a deterministic policy in every conversation that legal replies of O can lead it into.

    The conversations are those of `TicTacToe`, word for word. All conversations of one length are asked
    together, `concurrency` at a time. A policy that draws at random gets the tree of one of its draws.
    Raises PolicyFailure when the policy fails.
    """
    words, gate = wording_named(wording), asyncio.Semaphore(concurrency)

    async def ask(conversation: _Conversation) -> Message:
        async with gate:
            with boundary(PolicyFailure):
                return (await policy.complete(conversation.messages, key="")).message

    growing = [_Conversation.opened(opening, words) for opening in openings]
    roots = {opening: start.node for opening, start in zip(openings, growing, strict=True)}
    while growing:
        answers = await asyncio.gather(*map(ask, growing), return_exceptions=True)
        pairs, growing = zip(growing, answers, strict=True), []
        for conversation, message in pairs:
            if isinstance(message, BaseException):
                raise message
            growing += conversation.grown(message, words)
    return PolicyTree(roots=roots)


async def exact_rows(policy: Policy, *, name: str, wording: str = "compact") -> list[dict[str, Any]]:
    """Report rows of a policy that always takes its likeliest answer, or of a scripted player."""
    if isinstance(policy, MovePolicy):
        return [
            ExactFigures.of(solve_against(policy.moves, opponent)).row(name, o)
            for o, opponent in FIXED_OPPONENTS.items()
        ]
    return (await build_policy_tree(policy, wording=wording)).rows(name)


@dataclass(frozen=True, slots=True)
class _Conversation:
    node: Node
    messages: tuple[Message, ...]
    turn: int = 0

    @classmethod
    def opened(cls, opening: Opening, words: Wording) -> _Conversation:
        board = EMPTY_BOARD if opening is None else place_mark(EMPTY_BOARD, opening, "O")
        event: MoveEvent = "start" if opening is None else opening
        return cls(Node(board=board), (words.role("X"), words.show("X", event, board)))

    def grown(self, message: Message, words: Wording) -> Iterator[_Conversation]:
        """Enter the policy's answer; yield the conversations that it has to be asked in next."""
        node, answer = self.node, read(message.content)
        node.well_formed, refused = answer.well_formed, move_refusal(answer, node.board)
        node.refused = refused is not None
        following: list[tuple[MoveEvent, str]]
        if refused is not None or answer.move is None:
            following = [(refused or "malformed", node.board)]
        else:
            moved = place_mark(node.board, answer.move, "X")
            replies = [(cell, place_mark(moved, cell, "O")) for cell in free(moved)]
            following = [(CERTAIN_REPLY, moved)] if game_outcome(moved) else [*replies]
        for event, board in following:
            ended = game_outcome(board)
            last = self.turn + 1 >= MAX_TURNS
            child = Node(board=board, ended=ended or ("unfinished" if last else None))
            node.after[event if isinstance(event, int) else CERTAIN_REPLY] = child
            if child.ended is None:
                messages = (*self.messages, message, words.show("X", event, board))
                yield _Conversation(child, messages, self.turn + 1)


@dataclass(slots=True)
class _Ends:
    """Sums over the ends of games, each weighed by its probability."""

    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("X", "draw", "O", "unfinished"), 0.0))
    invalid: float = 0.0
    format: float = 0.0

    def collect(self, root: Node, weight: float, opponent: Opponent) -> None:
        stack = [(root, weight, 0, 0, False)]  # node, probability, turns, well-formed turns, any refused
        while stack:
            node, weight, turns, well, bad = stack.pop()
            if node.ended is not None:
                self.shares[node.ended] += weight
                self.invalid += weight * bad
                self.format += weight * well / turns
                continue
            if CERTAIN_REPLY in node.after:
                replies: Mapping[int, float] = {CERTAIN_REPLY: 1.0}
            else:
                cell, child = next(iter(node.after.items()))
                replies = opponent(f"{child.board[:cell]}.{child.board[cell + 1 :]}")  # without O's reply
            stack += [
                (node.after[cell], weight * share, turns + 1, well + node.well_formed, bad or node.refused)
                for cell, share in replies.items()
                if share > 0
            ]

    def figures(self) -> ExactFigures:
        x, drawn, o, unfinished, invalid, form = (
            round(total, 12) for total in (*self.shares.values(), self.invalid, self.format)
        )
        return ExactFigures(win=x, draw=drawn, loss=o + unfinished, unfinished=unfinished, invalid=invalid, format=form)
