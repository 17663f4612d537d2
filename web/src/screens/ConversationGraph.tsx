import { useMemo } from "react"
import type { Turn } from "../api/types"
import { count } from "../format"
import { line } from "../parts/safe"

const ROW = 22
const LANE = 14
const MOST = 400

/** Indices of the turns of the conversation that ends with this turn, from its first one. */
export function pathTo(turns: Turn[], end: number): number[] {
  const path: number[] = []
  for (let at: number | null | undefined = end; at !== null && at !== undefined; at = turns[at]?.parent) path.push(at)
  return path.reverse()
}

/** Indices of the turns that no other continues: the last one of each conversation. */
export function conversationEnds(turns: Turn[]): number[] {
  const continued = new Set(turns.map(turn => turn.parent))
  return turns.flatMap((_, at) => (continued.has(at) ? [] : [at]))
}

/** The lane of each turn: that of the turn it continues, or, where another has taken that on already, a new one. */
export function lanes(turns: Turn[]): number[] {
  const out: number[] = []
  const taken = new Set<number>()
  let used = 0
  for (const turn of turns) {
    const parent = turn.parent
    const free = parent !== null && !taken.has(parent)
    if (free) taken.add(parent)
    out.push(free ? (out[parent] ?? 0) : used++)
  }
  return out
}

interface GraphProps {
  turns: Turn[]
  focus: number | null
  onChoose: (turn: number) => void
}

/** The turns of a seat that carried on several conversations, each joined to the turn that it continues. */
export function ConversationGraph({ turns, focus, onChoose }: GraphProps) {
  const shown = useMemo(() => turns.slice(0, MOST), [turns])
  const lane = useMemo(() => lanes(shown), [shown])
  const left = (Math.max(...lane) + 1) * LANE + 8
  const [x, y] = [(at: number) => (lane[at] ?? 0) * LANE + 8, (at: number) => at * ROW + ROW / 2]
  return (
    <section className="panel graph" aria-label="Conversations of this seat">
      <h2>Conversations</h2>
      <p className="quiet">
        {count(conversationEnds(turns).length)} in {count(turns.length)} turns. Lines join a turn to the one that it
        continues.
      </p>
      <div className="graph-rows">
        <svg width={left} height={shown.length * ROW} aria-hidden="true">
          {shown.map(({ parent }, at) =>
            parent === null ? null : (
              <path
                key={`line ${at}`}
                d={`M${x(parent)},${y(parent)} C${x(at)},${y(parent) + ROW} ${x(at)},${y(parent)} ${x(at)},${y(at)}`}
              />
            ),
          )}
          {shown.map((turn, at) => (
            <circle
              key={`turn ${at}`}
              cx={x(at)}
              cy={y(at)}
              r={at === focus ? 5 : 4}
              className={turn.parent === null ? "graph-root" : undefined}
            />
          ))}
        </svg>
        <ol>
          {shown.map((turn, at) => (
            <li key={at} className={at === focus ? "graph-here" : undefined}>
              <button type="button" onClick={() => onChoose(at)}>
                <b>{at + 1}.</b> {line(turn.action.content || called(turn), 60)}
              </button>
            </li>
          ))}
        </ol>
      </div>
      {turns.length > MOST && <p className="quiet">Only the first {count(MOST)} turns are drawn.</p>}
    </section>
  )
}

function called(turn: Turn): string {
  return (turn.action.tool_calls ?? []).map(call => `${call.name}()`).join(" ")
}
