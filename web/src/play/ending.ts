/** How a game of tic-tac-toe ended, by the state that it left. */

import type { Session } from "../api/world"

/** The result for whoever played, the last move, and the cells as the board shows them; null for another game. */
export function ending({
  env,
  seat,
  state,
}: Pick<Session, "env" | "seat" | "state">): { result: string; last: string; cells: string[] } | null {
  const { board, winner, moves } = state
  if (!env.startsWith("tictactoe") || typeof board !== "string" || board.length !== 9) return null
  const mine = seat === "opponent" ? "O" : "X"
  const result =
    winner === "draw" ? "draw" : typeof winner !== "string" ? "undecided" : winner === mine ? "won" : "lost"
  const last = Array.isArray(moves) ? String(moves.at(-1) ?? "\u2013") : "\u2013"
  return { result, last, cells: [...board].map((mark, at) => (mark === "." ? String(at) : mark)) }
}
