import { useState } from "react"
import { branchSession, sessionGrid } from "../api/grid"
import { useData } from "../api/data"
import type { Plain, Session } from "../api/world"
import { useKeys } from "../keys"
import { ErrorLine, Skeleton } from "../parts/basics"
import { Film } from "./Film"

const CLICK = 6
/** The official actions, as they are written, shown and typed. */
const ACTIONS = [
  { number: 1, text: "up", sign: "\u2191", keys: ["ArrowUp"] },
  { number: 2, text: "down", sign: "\u2193", keys: ["ArrowDown"] },
  { number: 3, text: "left", sign: "\u2190", keys: ["ArrowLeft"] },
  { number: 4, text: "right", sign: "\u2192", keys: ["ArrowRight"] },
  { number: 5, text: "act", sign: "act", keys: [" "] },
  { number: 7, text: "undo", sign: "undo", keys: ["u", "z"] },
  { number: 0, text: "reset", sign: "reset", keys: ["r"] },
]

interface PlayProps {
  session: Session
  busy: boolean
  onAct: (what: Plain) => Promise<boolean>
}

/** A grid game under way: played by keys, buttons, clicks and touch. */
export function GridGame({ session, busy, onAct }: PlayProps) {
  const turn = session.messages.length + Number(session.over)
  const { data, error, slow } = useData(`grid ${session.id}`, signal => sessionGrid(session.id, signal), turn)
  const [past, setPast] = useState<number | null>(null)
  const last = (data?.moments.length ?? 1) - 1
  const live = past === null || past >= last
  const open = !busy && !session.over && live
  const mine = ACTIONS.filter(({ number }) => number === 0 || data?.available.includes(number))
  const take = (text: string) => {
    if (open) onAct({ text })
  }
  useKeys(session.over ? [] : mine.map(({ text, keys }) => ({ keys, what: `Action: ${text}`, run: () => take(text) })))
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={12} /> : null
  const clicks = data.available.includes(CLICK)
  return (
    <Film
      play={data}
      at={live ? last : past}
      alone={session.person !== "" && !session.over}
      onMoment={at => setPast(at >= last ? null : at)}
      onBranch={at => branchSession(session.id, at)}
      onPoint={open && clicks ? (x, y) => take(`click ${x} ${y}`) : undefined}
    >
      {!session.over && (
        <>
          <fieldset className="grid-actions">
            <legend className="sr-only">Actions</legend>
            {mine.map(({ text, sign }) => (
              <button
                key={text}
                type="button"
                className="button"
                disabled={!open}
                title={text}
                onClick={() => take(text)}
              >
                <span aria-hidden="true">{sign}</span>
                <span className="sr-only">{text}</span>
              </button>
            ))}
          </fieldset>
          <p className="quiet">
            {live
              ? `Keys: arrows${data.available.includes(5) ? ", space acts" : ""}${data.available.includes(7) ? ", u takes back" : ""}, r resets.${clicks ? " Click or touch the screen." : ""}`
              : "This is a past moment: go to the last one to play on there."}
          </p>
        </>
      )}
    </Film>
  )
}
