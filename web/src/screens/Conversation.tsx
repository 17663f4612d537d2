import { memo, useCallback, useMemo } from "react"
import { api } from "../api/client"
import type { Message as Said, Opened, Turn } from "../api/types"
import { count, figure } from "../format"
import { Chunks } from "../parts/Chunks"
import { Message } from "../parts/Message"
import { pathTo } from "./ConversationGraph"

/** Results that answer a turn's calls stand beside them, not again among the messages of the turn that continues it. */
function paired(turns: Turn[]): { results: Map<string, Said>; rest: Said[] }[] {
  const next = new Map<number, Turn>()
  for (const turn of turns) if (turn.parent !== null && !next.has(turn.parent)) next.set(turn.parent, turn)
  const answered = turns.map((turn, at) => {
    const ids = new Set((turn.action.tool_calls ?? []).map(call => call.id))
    const said = next.get(at)?.observation ?? []
    return new Map(
      said.flatMap(one =>
        one.role === "tool" && one.tool_call_id && ids.has(one.tool_call_id) ? [[one.tool_call_id, one]] : [],
      ),
    )
  })
  return turns.map((turn, at) => {
    const before = turn.parent === null ? undefined : answered[turn.parent]
    const rest = turn.observation.filter(
      one => !(one.role === "tool" && one.tool_call_id && before?.get(one.tool_call_id) === one),
    )
    return { results: answered[at] ?? new Map(), rest }
  })
}

interface ConversationProps {
  run: string
  opened: Opened
  seat: number
  turn: number | null
  /** The last turn of the only conversation that is wanted; null shows all turns in the order in which they came. */
  only: number | null
}

/** What was said, turn by turn; only what is near the eye is drawn. */
export function Conversation({ run, opened, seat, turn: focus, only }: ConversationProps) {
  const trajectory = opened.trajectories[seat]
  const turns = useMemo(() => trajectory?.turns ?? [], [trajectory])
  const said = useMemo(() => paired(turns), [turns])
  const whole = useCallback(
    async (message: Said) => {
      const turn = turns.findIndex(one => one.action === message || one.observation.includes(message))
      const at = turns[turn]?.observation.indexOf(message) ?? -1
      return (await api.text(run, opened.row.id, { seat, turn, message: at })).text
    },
    [run, opened.row.id, seat, turns],
  )
  const rewards = trajectory?.rewards ?? []
  const shown = useMemo(() => (only === null ? turns.map((_, at) => at) : pathTo(turns, only)), [turns, only])
  return (
    <Chunks
      count={shown.length}
      estimate={220}
      focus={focus === null || !shown.includes(focus) ? null : shown.indexOf(focus)}
      render={place => {
        const at = shown[place] ?? 0
        const [turn, pair] = [turns[at], said[at]]
        return turn && pair && <OneTurn {...{ turn, at, whole }} {...pair} reward={rewards[at]} here={at === focus} />
      }}
    />
  )
}

interface TurnProps {
  turn: Turn
  at: number
  results: Map<string, Said>
  rest: Said[]
  reward: number | undefined
  here: boolean
  whole: (message: Said) => Promise<string>
}

const OneTurn = memo(({ turn, at, results, rest, reward, here, whole }: TurnProps) => {
  const { tokens, usage } = turn
  const read = tokens ? tokens.prompt + tokens.offset : usage.prompt_tokens
  const written = tokens?.completion ?? usage.completion_tokens
  return (
    <section className={here ? "turn turn-here" : "turn"} aria-label={`Turn ${at + 1}`}>
      <header className="turn-head">
        <h2>Turn {at + 1}</h2>
        {turn.replaces && <span className="tone-warn">a context of its own begins here</span>}
        {turn.parent !== null && turn.parent !== at - 1 && (
          <span className="tone-warn">continues turn {turn.parent + 1}</span>
        )}
        <span className="turn-facts">
          {turn.finish !== "stop" && <span>finish {turn.finish}</span>}
          {read !== undefined && <span>{count(read)} prompt tokens</span>}
          {written !== undefined && <span>{count(written)} completion tokens</span>}
          {reward !== undefined && reward !== 0 && <span>paid {figure(reward)}</span>}
        </span>
      </header>
      {rest.map((message, n) => (
        <Message key={n} message={message} whole={whole} />
      ))}
      <Message message={turn.action} results={results} whole={whole} />
    </section>
  )
})
