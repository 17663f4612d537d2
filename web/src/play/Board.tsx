import type { Message } from "../api/types"

const ROW = /^[ |]*([XO0-8])[ |]*([XO0-8])[ |]*([XO0-8])[ |]*$/gm

/** The nine cells of the last board that was shown, if one was: a mark, or the digit of a free cell. */
export function boardIn(messages: Message[]): string[] | null {
  for (const { content, role } of messages.toReversed()) {
    if (role === "assistant" || content.length > 4000) continue
    const cells = [...content.matchAll(ROW)].flatMap(([, ...row]) => row)
    if (cells.length >= 9 && cells.every(one => one !== undefined)) return cells.slice(-9) as string[]
  }
  return null
}

/** Tic-tac-toe to click on. */
export function Board({ cells, busy, onMove }: { cells: string[]; busy: boolean; onMove: (cell: number) => void }) {
  return (
    <fieldset className="board">
      <legend className="sr-only">Board</legend>
      {cells.map((mark, at) => {
        const free = mark !== "X" && mark !== "O"
        return (
          <button
            key={at}
            type="button"
            className={`cell cell-${free ? "free" : mark}`}
            disabled={!free || busy}
            aria-label={`Cell ${at}: ${free ? "free" : mark}`}
            onClick={() => onMove(at)}
          >
            {mark}
          </button>
        )
      })}
    </fieldset>
  )
}
