import { type ReactNode, useState } from "react"
import type { GridPlay } from "../api/grid"
import { Refused } from "../api/client"
import type { Session } from "../api/world"
import { count } from "../format"
import { useKeys } from "../keys"
import { ErrorLine, Panel } from "../parts/basics"
import { line } from "../parts/safe"
import { go, to } from "../router"
import { Graph } from "./Graph"
import { Screen } from "./Screen"

interface FilmProps {
  play: GridPlay
  at: number
  onMoment: (at: number) => void
  /** Begins a game that goes on from a moment. */
  onBranch: (at: number) => Promise<{ session: Session }>
  /** The screen alone: no past, no graph. */
  alone?: boolean
  onPoint?: ((x: number, y: number) => void) | undefined
  children?: ReactNode
}

const WORDS: Record<string, string> = { WIN: "won", GAME_OVER: "lost: only a reset goes on", NOT_FINISHED: "" }

/** The screen of a moment, all moments to scrub through, and the graph of its level's frames. */
export function Film({ play, at, onMoment, onBranch, alone = false, onPoint, children }: FilmProps) {
  const [error, setError] = useState<Refused | null>(null)
  const last = play.moments.length - 1
  const now = play.moments[at]
  const move = (by: number) => onMoment(Math.max(0, Math.min(last, at + by)))
  const branch = async () => {
    try {
      go(to(["play"], { session: (await onBranch(at)).session.id }))
    } catch (refused) {
      setError(refused instanceof Refused ? refused : new Refused(String(refused), 0))
    }
  }
  const keys = [
    { keys: [","], what: "Moment before", run: () => move(-1) },
    { keys: ["."], what: "Next moment", run: () => move(1) },
    { keys: ["Home"], what: "First moment", run: () => onMoment(0) },
    { keys: ["End"], what: "Last moment", run: () => onMoment(last) },
  ]
  useKeys(alone ? [] : keys)
  if (!now) return null
  const solved = `level ${Math.min(now.level + 1, play.levels)} of ${play.levels}`
  return (
    <div className="grid-film">
      <Panel title="Screen" className="grid-panel">
        <Screen play={play} frame={now.frame} label={`Screen at moment ${at}, ${solved}`} onPoint={onPoint} />
        <p className="quiet" aria-live="polite">
          {solved} {"\u00b7"} {count(now.actions)} actions {now.action && `\u00b7 after ${line(now.action, 30)}`}{" "}
          <b>{WORDS[now.state] ?? line(now.state, 20)}</b>
        </p>
        {play.optimum && <p className="quiet">Shortest solutions: {play.optimum.join(", ")} actions.</p>}
        {children}
        {!alone && (
          <>
            <label className="grid-scrub">
              <span>
                Moment {at} of {last}
              </span>
              <input
                type="range"
                min={0}
                max={last}
                value={at}
                onChange={event => onMoment(Number(event.target.value))}
              />
            </label>
            <button type="button" className="button" onClick={branch} disabled={now.level >= play.levels}>
              Play on from here
            </button>
          </>
        )}
        {error && <ErrorLine error={error} />}
      </Panel>
      {!alone && <Graph play={play} at={at} onMoment={onMoment} />}
    </div>
  )
}
