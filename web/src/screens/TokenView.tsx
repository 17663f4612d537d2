import { memo, type MouseEvent, useState } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import type { Opened, Token } from "../api/types"
import { count, figure, signed } from "../format"
import { Choose, ErrorLine, Skeleton } from "../parts/basics"
import { Chunks } from "../parts/Chunks"
import { line } from "../parts/safe"
import { Safe } from "../parts/Text"
import { useQuery } from "../router"

type By = "probability" | "advantage"

/** How surprising a token was, from 0 to 9: -log p in steps of half a nat. */
const surprise = (logprob: number): number => Math.min(9, Math.floor(-logprob * 2))

function look(token: Token, by: By, most: number): string {
  if (!token.sampled) return "token"
  if (by === "advantage") {
    const share = (token.advantage ?? 0) / (most || 1)
    const size = Math.min(9, Math.round(Math.abs(share) * 9))
    return `token sampled ${share < 0 ? "cold" : "warm"}-${size}`
  }
  return token.logprob === null ? "token sampled" : `token sampled heat-${surprise(token.logprob)}`
}

/** A token as it can be seen: line ends by a sign, what has no text by its id. */
function Shown({ token }: { token: Token }) {
  if (token.text === null) return <>{`\u2039${token.id}\u203a`}</>
  if (token.text === "") return <>{"\u2205"}</>
  return token.text
    .split(/(\n)/)
    .map((part, at) => (part === "\n" ? <span key={at}>{"\u21b5\n"}</span> : <Safe key={at} text={part} />))
}

const Run = memo(({ tokens, by }: { tokens: Token[]; by: By }) => {
  const most = Math.max(...tokens.map(token => Math.abs(token.advantage ?? 0)), 0)
  return tokens.map((token, at) => (
    <span key={at} data-at={at} className={look(token, by, most)}>
      <Shown token={token} />
    </span>
  ))
})

interface TurnTokensProps {
  run: string
  id: number
  seat: number
  turn: number
  by: By
  onHover: (token: Token | null) => void
}

function TurnTokens({ run, id, seat, turn, by, onHover }: TurnTokensProps) {
  const { data, error, slow } = useData(`tokens ${run} ${id} ${seat} ${turn}`, signal =>
    api.tokens(run, id, seat, turn, signal),
  )
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={3} /> : <div className="token-room" />
  const over = (event: MouseEvent) => {
    const at = (event.target as HTMLElement).closest<HTMLElement>("[data-at]")?.dataset.at
    onHover(at === undefined ? null : (data.tokens[Number(at)] ?? null))
  }
  return (
    <>
      {data.why && <p className="quiet">{line(data.why, 300)}</p>}
      {/* biome-ignore lint/a11y/useKeyWithMouseEvents: what hovering adds is in the raw record too */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a readout, not a control */}
      <div className="tokens" dir="auto" onMouseOver={over} onMouseLeave={() => onHover(null)}>
        <Run tokens={data.tokens} by={by} />
      </div>
    </>
  )
}

interface TokenViewProps {
  run: string
  opened: Opened
  seat: number
  turn: number | null
}

/** What was really sampled: how probable each token was, what is masked, where turns end. */
export function TokenView({ run, opened, seat, turn: focus }: TokenViewProps) {
  const [query, change] = useQuery()
  const [hover, setHover] = useState<Token | null>(null)
  const by: By = query.get("by") === "advantage" ? "advantage" : "probability"
  const turns = opened.trajectories[seat]?.turns ?? []
  const choices = ["probability", "advantage"].map(value => ({ value, label: `By ${value}` }))
  return (
    <div className="token-view">
      <div className="token-bar">
        <Choose
          label="Colour"
          value={by}
          choices={choices}
          onChoose={value => change({ by: value === "probability" ? null : value })}
        />
        <Legend by={by} />
        <Readout token={hover} />
      </div>
      <Chunks
        count={turns.length}
        estimate={180}
        focus={focus}
        render={at => {
          const tokens = turns[at]?.tokens
          return (
            <section className={at === focus ? "turn turn-here" : "turn"} aria-label={`Turn ${at + 1}`}>
              <header className="turn-head">
                <h2>Turn {at + 1}</h2>
                {tokens && (
                  <span className="turn-facts">
                    <span>{count(tokens.offset)} before</span>
                    <span>{count(tokens.prompt)} masked</span>
                    <span>{count(tokens.completion)} sampled</span>
                    <span>policy version {tokens.version}</span>
                  </span>
                )}
              </header>
              <div className="token-turn">
                {tokens ? (
                  <TurnTokens {...{ run, seat, by }} id={opened.row.id} turn={at} onHover={setHover} />
                ) : (
                  <p className="quiet">The policy did not say which tokens it sampled in this turn.</p>
                )}
              </div>
            </section>
          )
        }}
      />
    </div>
  )
}

function Legend({ by }: { by: By }) {
  const steps = Array.from({ length: 10 }, (_, n) => n)
  if (by === "advantage") {
    return (
      <span className="token-legend">
        worse
        {[9, 6, 3].map(n => (
          <i key={`c${n}`} className={`cold-${n}`} />
        ))}
        {[0, 3, 6, 9].map(n => (
          <i key={n} className={`warm-${n}`} />
        ))}
        better
      </span>
    )
  }
  return (
    <span className="token-legend">
      p = 1
      {steps.map(n => (
        <i key={n} className={`heat-${n}`} />
      ))}
      0.01 or less
    </span>
  )
}

function Readout({ token }: { token: Token | null }) {
  if (!token) return <span className="readout quiet">Point at a token to read it off</span>
  const probability = token.logprob === null ? null : Math.exp(token.logprob)
  return (
    <span className="readout">
      <b>{token.text === null ? "\u2013" : JSON.stringify(line(token.text, 40))}</b>
      <span>id {token.id}</span>
      {token.sampled ? (
        <>
          <span>p {figure(probability)}</span>
          <span>log p {figure(token.logprob)}</span>
          <span>advantage {signed(token.advantage)}</span>
        </>
      ) : (
        <span>masked: not sampled, never trained on</span>
      )}
    </span>
  )
}
