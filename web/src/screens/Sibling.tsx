import { memo } from "react"
import { mainSeat } from "../api/seat"
import type { Opened, Turn } from "../api/types"
import { figure, signed } from "../format"
import { Bar, Link } from "../parts/basics"
import { Safe, Text } from "../parts/Text"
import { Status } from "./Rollouts"

/** Where a rollout leaves the one it is read beside. */
export type Parting = { turn: number; character: number } | null

/** What a turn's action was: its text, then its calls. */
export function acted({ action }: Turn): string {
  const calls = (action.tool_calls ?? []).map(call => `${call.name}(${call.arguments})`)
  return [action.content, ...calls].filter(Boolean).join("\n")
}

/** Every action of a rollout's first seat that learns, turn by turn. */
export const actions = (opened: Opened): string =>
  (mainSeat(opened)?.turns ?? []).map((turn, at) => `\u2014 turn ${at + 1} \u2014\n${acted(turn)}`).join("\n")

interface SiblingProps {
  opened: Opened
  title: string
  address: string
  parting: Parting
  /** Advantages of the group reach this far. */
  most: number
  picked?: boolean
  selected?: boolean
  onPick?: () => void
}

/** One of several rollouts of the same task, as a column. */
export const Sibling = memo((props: SiblingProps) => {
  const { opened, title, address, parting, most, picked, selected, onPick } = props
  const trajectory = mainSeat(opened)
  const score = trajectory?.score ?? null
  return (
    <section className={selected ? "sibling selected" : "sibling"} aria-label={title}>
      <header>
        <div className="sibling-name">
          <Link to={address} className="strong link">
            {title}
          </Link>
          <Status status={opened.status} stop={opened.stop_reason} />
          {onPick && (
            <label>
              <input type="checkbox" checked={picked} onChange={onPick} /> diff
            </label>
          )}
        </div>
        <dl className="sibling-score">
          <div>
            <dt>Reward</dt>
            <dd>{score ? figure(score.reward) : "unscored"}</dd>
          </div>
          <div>
            <dt>Advantage</dt>
            <dd>
              {signed(trajectory?.advantage)}
              <Bar share={(trajectory?.advantage ?? 0) / (most || 1)} from="middle" />
            </dd>
          </div>
        </dl>
        <p className="sibling-parts">
          {Object.entries(score?.parts ?? {}).map(([name, value]) => (
            <span key={name}>
              <Safe text={name} /> <b>{figure(value, 2)}</b>
            </span>
          ))}
        </p>
      </header>
      {opened.error && <Text text={opened.error} className="code tone-bad pad" />}
      {(trajectory?.turns ?? []).map((turn, at) => (
        <Act key={at} turn={turn} at={at} parting={parting} />
      ))}
      {(trajectory?.turns.length ?? 0) === 0 && <p className="quiet pad">Nothing was said.</p>}
    </section>
  )
})

const LEAD = 160

/** The end of a text. */
const tail = (text: string): string => (text.length > LEAD ? `\u2026${text.slice(-LEAD)}` : text)

/** One turn: what was said to the policy folded away, what it did in full; what it shares with the first is quiet. */
function Act({ turn, at, parting }: { turn: Turn; at: number; parting: Parting }) {
  const text = acted(turn)
  const seen = turn.observation.map(message => `${message.role}: ${message.content}`).join("\n\n")
  const shared = parting === null ? 0 : at < parting.turn ? text.length : at === parting.turn ? parting.character : 0
  return (
    <div className="act">
      <details>
        <summary>
          <span className="act-turn">turn {at + 1}</span>
          {parting?.turn === at && <span className="parting">diverges here</span>}
          <span className="act-seen">{seen.slice(-80).replace(/\s+/g, " ")}</span>
        </summary>
        <Text text={seen} className="code" />
      </details>
      {parting?.turn === at ? (
        <Text lead={tail(text.slice(0, shared))} text={text.slice(shared)} className="parted" />
      ) : (
        <Text text={text} className={shared ? "quiet" : ""} />
      )}
    </div>
  )
}
