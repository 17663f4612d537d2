import { useEffect, useMemo, useRef, useState } from "react"
import { Refused } from "../api/client"
import { useData } from "../api/data"
import type { Message as Said } from "../api/types"
import * as worlds from "../api/world"
import type { Plain, Session } from "../api/world"
import { figure } from "../format"
import { useKeys } from "../keys"
import { Choose, ErrorLine, Figure, Link, Panel, Pill, Skeleton } from "../parts/basics"
import { Message } from "../parts/Message"
import { line } from "../parts/safe"
import { Text } from "../parts/Text"
import { to, useQuery } from "../router"
import { Apps } from "../world/Apps"
import { counts, differences, freshRows } from "../world/past"
import { EndState } from "../screens/ScoreCard"
import { clock, day } from "../world/words"
import { Board, boardIn } from "./Board"
import { ending } from "./ending"
import { GridGame } from "../grid/Play"
import { Tools } from "./Tools"

const AGAIN = 700

/** A move in the form that the game pays for, so that a person's game is scored as a model's. */
const moveText = (cell: number): string => `<think></think><move>${cell}</move>`

const isGrid = (session: Session): boolean => session.env.split(",")[0] === "grids"

/** A game under way, or over. */
export function Game({ id }: { id: string }) {
  const [now, setNow] = useState<Session | null>(null)
  const [error, setError] = useState<Refused | null>(null)
  const [busy, setBusy] = useState(false)
  const first = useData(`session ${id}`, signal => worlds.session(id, signal))
  const session = now ?? first.data
  const idle = session !== null && !session.over && !session.waiting
  useEffect(() => {
    if (!idle) return
    const again = setInterval(() => worlds.session(id).then(setNow, setError), AGAIN)
    return () => clearInterval(again)
  }, [id, idle])
  const act = async (what: Plain): Promise<boolean> => {
    setBusy(true)
    setError(null)
    try {
      setNow(await worlds.act(id, what))
      return true
    } catch (refused) {
      setError(refused instanceof Refused ? refused : new Refused(String(refused), 0))
      return false
    } finally {
      setBusy(false)
    }
  }
  if (first.error && !session) {
    return (
      <ErrorLine error={first.error}>
        <Link to={to(["play"])} className="link">
          Play another
        </Link>
      </ErrorLine>
    )
  }
  if (!session) return first.slow ? <Skeleton lines={12} /> : null
  const grid = isGrid(session)
  const panes = (
    <div className={session.world || session.tools.length > 0 ? "game-panes" : "game-panes game-alone"}>
      <Panel className="game-talk" title="Conversation">
        <Talk messages={session.messages} />
        {!session.over && <Answer session={session} busy={busy || !session.waiting} onAct={act} />}
      </Panel>
      {(session.world || session.tools.length > 0) && <Beside session={session} busy={busy} onAct={act} />}
    </div>
  )
  return (
    <div className="screen fill game">
      <Head session={session} busy={busy} onStop={() => act({ stop: true })} />
      {error && <ErrorLine error={error} />}
      {session.over && <Outcome session={session} />}
      {grid && <GridGame session={session} busy={busy || !session.waiting} onAct={act} />}
      {grid ? (
        <details className="grid-talk">
          <summary>What a model is told</summary>
          {panes}
        </details>
      ) : (
        panes
      )}
    </div>
  )
}

function Head({ session, busy, onStop }: { session: Session; busy: boolean; onStop: () => void }) {
  const others = Object.entries(session.labels).filter(([seat]) => seat !== session.seat)
  return (
    <div className="head">
      <h1>{line(session.env, 60)}</h1>
      <Pill tone={session.over ? "plain" : session.waiting ? "accent" : "warn"}>
        {session.over ? "over" : session.waiting ? "your turn" : "waiting for the others"}
      </Pill>
      <span className="quiet grow">
        {line(session.task.id, 80)} {"\u00b7"} seed {session.seed}
        {others.length > 0 && ` \u00b7 you are ${line(session.seat, 30)}, against ${line(others[0]?.[1] ?? "", 60)}`}
        {session.since && (
          <>
            {" \u00b7 goes on from "}
            <Link
              to={to(["run", session.since.run, "rollout", session.since.rollout], {
                view: "world",
                n: session.since.n,
              })}
              className="link"
            >
              {line(session.since.run, 40)} #{session.since.rollout}, line {session.since.n}
            </Link>
          </>
        )}
      </span>
      <div className="actions">
        {!session.over && (
          <button type="button" className="button" disabled={busy || !session.waiting} onClick={onStop}>
            End and score
          </button>
        )}
        <Link to={to(["play"], { env: session.since ? null : session.env.split(",")[0] })} className="button">
          Another game
        </Link>
      </div>
    </div>
  )
}

function Outcome({ session }: { session: Session }) {
  const { score, scores, stored, stop, error } = session
  const end = ending(session)
  return (
    <Panel className="game-over">
      <dl className="figures">
        <Figure
          name="Your reward"
          value={score ? figure(score.reward) : "unscored"}
          tone={score && score.reward > 0 ? "good" : "plain"}
        />
        {Object.entries(scores)
          .filter(([seat]) => seat !== session.seat)
          .map(([seat, reward]) => (
            <Figure key={seat} name={`Reward of ${line(seat, 30)}`} value={figure(reward)} />
          ))}
        {Object.entries(score?.parts ?? {}).map(([name, value]) => (
          <Figure key={name} name={line(name, 30)} value={figure(value)} />
        ))}
        <Figure name="Ended by" value={line(stop ?? "a failure", 40)} />
        {end && <Figure name="Game" value={end.result} tone={end.result === "lost" ? "bad" : "plain"} />}
        {end && <Figure name="Last move" value={end.last} />}
      </dl>
      {end ? <Board cells={end.cells} busy onMove={() => {}} /> : <EndState state={session.state} />}
      {Object.entries(score?.notes ?? {}).map(([name, note]) => (
        <div key={name}>
          <h3>{line(name, 40)}</h3>
          <Text text={note} />
        </div>
      ))}
      {error && <ErrorLine error={error} />}
      {stored && (
        <Link
          to={to(["run", stored.key, "rollout", stored.id], session.world ? { view: "world" } : {})}
          className="button primary"
        >
          Open the stored rollout
        </Link>
      )}
    </Panel>
  )
}

/** What was said; results of calls stand beside them. */
function Talk({ messages }: { messages: Said[] }) {
  const end = useRef<HTMLDivElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the newest words are brought into sight
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" })
  }, [messages.length])
  const results = useMemo(
    () => new Map(messages.flatMap(one => (one.role === "tool" && one.tool_call_id ? [[one.tool_call_id, one]] : []))),
    [messages],
  )
  const calls = useMemo(() => new Set(messages.flatMap(one => (one.tool_calls ?? []).map(call => call.id))), [messages])
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and by the keyboard too
    <section className="talk" tabIndex={0} aria-label="What was said">
      {messages
        .filter(one => !(one.role === "tool" && one.tool_call_id && calls.has(one.tool_call_id)))
        .map((message, at) => (
          <Message key={at} message={message} results={results} />
        ))}
      <div ref={end} />
    </section>
  )
}

interface ActProps {
  session: Session
  busy: boolean
  onAct: (what: Plain) => Promise<boolean>
}

function Answer({ session, busy, onAct }: ActProps) {
  const [text, setText] = useState("")
  const box = useRef<HTMLTextAreaElement>(null)
  const grid = isGrid(session)
  const cells = session.env.startsWith("tictactoe") ? boardIn(session.messages) : null
  useKeys([{ keys: ["i"], what: "Write an answer", run: () => box.current?.focus() }])
  useEffect(() => {
    if (!busy && !grid) box.current?.focus()
  }, [busy, grid])
  const send = async (said: string) => {
    if (await onAct({ text: said })) setText("")
  }
  return (
    <form
      className="answer"
      onSubmit={event => {
        event.preventDefault()
        send(text)
      }}
    >
      {cells && <Board cells={cells} busy={busy} onMove={cell => send(moveText(cell))} />}
      <textarea
        ref={box}
        className="field"
        rows={3}
        aria-label="Your answer"
        placeholder={busy ? "Waiting for the others" : "Your answer; Ctrl+Enter sends it"}
        value={text}
        onChange={event => setText(event.target.value)}
        onKeyDown={event => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(text)
          if (event.key === "Escape") event.currentTarget.blur()
        }}
      />
      <button type="submit" className="button primary" disabled={busy}>
        Send
      </button>
    </form>
  )
}

/** The tools that can be called, and in a world the apps as they stand. */
function Beside({ session, busy, onAct }: ActProps) {
  const [query, change] = useQuery()
  const tools = session.tools.length > 0
  const pane = query.get("pane") === "apps" || !tools ? "apps" : "tools"
  const panes = [
    ...(tools ? [{ value: "tools", label: "Tools" }] : []),
    ...(session.world ? [{ value: "apps", label: "Apps" }] : []),
  ]
  return (
    <Panel
      className="game-beside"
      title={<Choose label="Pane" value={pane} onChoose={next => change({ pane: next })} choices={panes} />}
    >
      {pane === "tools" ? (
        <div className="game-scroll">
          <Tools
            tools={session.tools}
            chosen={query.get("tool") ?? ""}
            busy={busy || !session.waiting}
            onChoose={name => change({ tool: name })}
            onCall={call => onAct({ call })}
          />
        </div>
      ) : (
        <LiveApps session={session} />
      )}
    </Panel>
  )
}

function LiveApps({ session }: { session: Session }) {
  const [query, change] = useQuery()
  const turn = session.messages.length
  const loaded = useData(`apps ${session.id}`, signal => worlds.appsOf(session.id, signal), turn)
  const before = useRef<{ turn: number; apps: worlds.States }[]>([])
  const data = loaded.data
  if (data && before.current.at(-1)?.apps !== data.apps) {
    before.current = [...before.current.slice(-1), { turn, apps: data.apps }]
  }
  if (loaded.error && !data) return <ErrorLine error={loaded.error} />
  if (!data) return loaded.slow ? <Skeleton /> : null
  const found = before.current[0] ? differences(before.current[0].apps, data.apps) : []
  return (
    <>
      <p className="quiet game-clock">
        {day(data.time)} {clock(data.time)} UTC
      </p>
      <Apps
        states={data.apps}
        kinds={data.kinds}
        now={data.time}
        app={query.get("app") ?? ""}
        open={query.get("open") ?? ""}
        onApp={app => change({ app, open: null })}
        onOpen={open => change({ open })}
        changed={counts(found)}
        fresh={name => freshRows(found, name)}
      />
    </>
  )
}
