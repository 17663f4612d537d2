import { lazy, type ReactNode, Suspense } from "react"
import { api, EXPORTED } from "../api/client"
import { useData } from "../api/data"
import type { Opened } from "../api/types"
import { count, duration } from "../format"
import { useKeys } from "../keys"
import { Choose, Copy, ErrorLine, Link, Skeleton } from "../parts/basics"
import { Reading } from "../parts/reading"
import { line } from "../parts/safe"
import { Text } from "../parts/Text"
import { go, to, useQuery } from "../router"
import { Conversation } from "./Conversation"
import { ConversationGraph, conversationEnds } from "./ConversationGraph"
import { counted, Status } from "./Rollouts"
import { Facts, ScoreCard } from "./ScoreCard"
import { TokenView } from "./TokenView"

const World = lazy(() => import("./World"))
const Grid = lazy(() => import("./Grid"))

const VIEWS = { conversation: "Conversation", tokens: "Tokens", world: "World", grid: "Game", raw: "Raw" } as const
type View = keyof typeof VIEWS

interface Near {
  previous: string | null
  next: string | null
}

/** The neighbours: in the list that this rollout was opened from, or by id. */
function useNear(run: string, opened: Opened | null): Near {
  const [query] = useQuery()
  const at = query.has("at") ? Number(query.get("at")) : null
  const [filter, sort] = [query.get("filter") ?? "", query.get("sort") ?? "-id"]
  const from = Math.max(0, (at ?? 0) - 1)
  const listed = at !== null && (filter !== "" || sort !== "id")
  const page = useData(listed ? `near ${run} ${filter} ${sort} ${from}` : null, signal =>
    api.rollouts(run, { filter, sort, offset: from, limit: 3 }, signal),
  )
  const address = (id: number | null | undefined, place: number | null) => {
    if (!id) return null
    const { turn: _, ...kept } = Object.fromEntries(query)
    return to(["run", run, "rollout", id], { ...kept, at: place })
  }
  const rows = page.data?.rows ?? []
  const mine = rows.findIndex(row => row.id === opened?.row.id)
  if (listed && at !== null && mine >= 0) {
    return {
      previous: address(rows[mine - 1]?.id, from + mine - 1),
      next: address(rows[mine + 1]?.id, from + mine + 1),
    }
  }
  if (listed && !page.data && !page.error) return { previous: null, next: null } // the list is on its way
  return { previous: address(opened?.previous, null), next: address(opened?.next, null) }
}

/** Screen 5: one rollout, to the last token. */
export default function Rollout({ run, id }: { run: string; id: number }) {
  const [query, change] = useQuery()
  const { data: opened, error, slow } = useData(`rollout ${run} ${id}`, signal => api.rollout(run, id, signal))
  const near = useNear(run, opened)
  const seats = opened?.trajectories.length ?? 0
  const seat = Math.min(Math.max(0, Number(query.get("seat") ?? 0) || 0), Math.max(0, seats - 1))
  const played = opened?.trajectories[seat]?.turns ?? []
  const turns = played.length
  const ends = conversationEnds(played)
  const only = query.has("only") && ends.includes(Number(query.get("only"))) ? Number(query.get("only")) : null
  const turn = query.has("turn") ? Number(query.get("turn")) : null
  const asked = (query.get("view") ?? "conversation") as View
  const view: View = Object.hasOwn(VIEWS, asked) ? asked : "conversation"
  const move = (by: number) =>
    change({ turn: Math.max(0, Math.min(turns - 1, turn === null ? (by > 0 ? 0 : turns - 1) : turn + by)) })
  const reading = query.get("read") === "markdown" ? "markdown" : "text"
  const read = (next: string) => change({ read: next === "text" ? null : next })
  const show = (next: View) => change({ view: next === "conversation" ? null : next })
  const back = to(["run", run, "rollouts"], {
    filter: query.get("filter"),
    sort: query.get("sort"),
    at: query.get("at"),
    read: query.get("read"),
  })
  const row = opened?.row
  useKeys([
    { keys: view === "world" ? [] : ["j", "ArrowDown"], what: "Next turn", run: () => move(1) },
    { keys: view === "world" ? [] : ["k", "ArrowUp"], what: "Turn before", run: () => move(-1) },
    { keys: ["]", "n"], what: "Next rollout of the list", run: () => near.next && go(near.next) },
    { keys: ["[", "p"], what: "Rollout before", run: () => near.previous && go(near.previous) },
    { keys: ["c"], what: "Conversation", run: () => show("conversation") },
    {
      keys: view === "conversation" ? ["m"] : [],
      what: "Read as text or as markdown",
      run: () => read(reading === "text" ? "markdown" : "text"),
    },
    { keys: ["v"], what: "Tokens", run: () => show("tokens") },
    { keys: ["w"], what: opened?.world ? "World" : "", run: () => opened?.world && show("world") },
    { keys: ["s"], what: opened?.grid ? "Screen of the game" : "", run: () => opened?.grid && show("grid") },
    { keys: ["r"], what: "Raw record", run: () => show("raw") },
    { keys: ["u"], what: "Its group", run: () => row && go(to(["run", run, "group", row.stage, row.step, row.group])) },
    { keys: ["Escape"], what: "Back to the list", run: () => go(back) },
  ])
  if (error && !opened) {
    return (
      <ErrorLine error={error}>
        <Link to={to(["run", run])} className="link">
          The run
        </Link>
      </ErrorLine>
    )
  }
  if (!opened) return slow ? <Skeleton lines={14} /> : null
  return (
    <div className="screen">
      <Head {...{ run, opened, near }} />
      {opened.error && <Wall opened={opened} />}
      <div className="toolbar">
        <Choose
          label="View"
          value={view}
          onChoose={next => show(next as View)}
          choices={Object.entries(VIEWS)
            .filter(([value]) => value !== "world" || opened.world)
            .filter(([value]) => value !== "grid" || (opened.grid && !EXPORTED))
            .map(([value, label]) => ({ value, label }))}
        />
        {view === "conversation" && (
          <Choose
            label="Read as"
            value={reading}
            onChoose={read}
            choices={[
              { value: "text", label: "Text" },
              { value: "markdown", label: "Markdown" },
            ]}
          />
        )}
        {seats > 1 && (
          <Choose
            label="Seat"
            value={String(seat)}
            onChoose={next => change({ seat: next, turn: null, only: null })}
            choices={opened.trajectories.map((one, at) => ({ value: String(at), label: line(one.seat, 30) }))}
          />
        )}
        {ends.length > 1 && ends.length <= 12 && view === "conversation" && (
          <Choose
            label="Conversation"
            value={only === null ? "all" : String(only)}
            onChoose={next => change({ only: next === "all" ? null : next, turn: null })}
            choices={[
              { value: "all", label: "All turns" },
              ...ends.map(end => ({ value: String(end), label: `Up to turn ${end + 1}` })),
            ]}
          />
        )}
      </div>
      {view === "world" ? (
        <Suspense fallback={<Skeleton />}>
          <World run={run} id={id} />
        </Suspense>
      ) : view === "grid" && opened.grid && !EXPORTED ? (
        <Suspense fallback={<Skeleton />}>
          <Grid run={run} id={id} />
        </Suspense>
      ) : (
        <div className="rollout">
          <div className="rollout-main">
            <Reading value={reading}>{main(view, { run, opened, seat, turn, only })}</Reading>
          </div>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
          <aside className="rollout-side" aria-label="Score and facts" tabIndex={0}>
            {opened.trajectories[seat] && <ScoreCard trajectory={opened.trajectories[seat]} />}
            {ends.length > 1 && (
              <ConversationGraph turns={played} focus={turn} onChoose={next => change({ turn: next, only: null })} />
            )}
            <Facts opened={opened} />
          </aside>
        </div>
      )}
    </div>
  )
}

interface MainProps {
  run: string
  opened: Opened
  seat: number
  turn: number | null
  only: number | null
}

function main(view: View, props: MainProps): ReactNode {
  const key = `${props.opened.row.id} ${props.seat} ${props.only}`
  if (view === "raw") return <Raw {...props} />
  if ((props.opened.trajectories[props.seat]?.turns.length ?? 0) === 0) {
    return <p className="quiet pad">Nothing was said: the rollout ended before its first turn.</p>
  }
  return view === "tokens" ? <TokenView key={key} {...props} /> : <Conversation key={key} {...props} />
}

function Raw({ run, opened }: { run: string; opened: Opened }) {
  return (
    <div className="pad">
      <p className="quiet">
        As the page got it; long texts are cut.{" "}
        <a href={api.raw(run, opened.row.id)} download className="link">
          Download the whole record
        </a>
      </p>
      <Text text={JSON.stringify(opened, null, 2)} className="code" />
    </div>
  )
}

function Head({ run, opened, near }: { run: string; opened: Opened; near: Near }) {
  const { row } = opened
  const step = (address: string | null, sign: string, label: string) =>
    address ? (
      <Link to={address} className="button" label={label} title={label}>
        {sign}
      </Link>
    ) : (
      <span className="button off" aria-hidden="true">
        {sign}
      </span>
    )
  return (
    <div className="head">
      <h1>{line(row.task, 120)}</h1>
      <Status status={row.status} stop={row.stop_reason} />
      <span className="quiet grow">
        #{row.id} {"\u00b7"} {line(row.stage, 40)} step {count(row.step)} {"\u00b7"}{" "}
        <Link to={to(["run", run, "group", row.stage, row.step, row.group])} className="link">
          group {count(row.group)}, sample {row.sample_index}
        </Link>{" "}
        {"\u00b7"} seed {row.seed} {"\u00b7"} {count(row.turns)} {row.turns === 1 ? "turn" : "turns"} {"\u00b7"}{" "}
        {counted(row) ? `${count(row.tokens_in)} prompt, ${count(row.tokens_out)} completion tokens` : "tokens unknown"}{" "}
        {"\u00b7"} {row.seconds > 0 ? duration(row.seconds) : "duration unknown"}
      </span>
      <div className="actions">
        {opened.again && <Copy text={opened.again} what="Copy command" />}
        {step(near.previous, "\u2190", "Rollout before")}
        {step(near.next, "\u2192", "Next rollout")}
      </div>
    </div>
  )
}

const WRITTEN = [
  ["traceback", "At"],
  ["output", "Its program wrote"],
  ["advice", "What to do"],
] as const

/** A failure, and where it was raised: the traceback and what its program wrote are folded. */
function Wall({ opened }: { opened: Opened }) {
  const wall = /^(\w+)Failure$/.exec(opened.stop_reason)?.[1]?.toLowerCase()
  return (
    <div className="wall" role="alert">
      <header>
        <b>{line(opened.stop_reason, 80)}</b>
        {wall && <span>raised by the {wall}</span>}
      </header>
      <Text text={opened.error ?? ""} className="code" />
      {WRITTEN.map(([name, title]) => {
        const text = opened.failure?.[name]
        return (
          text && (
            <details key={name} open={name === "advice"}>
              <summary>
                {title}
                {name === "traceback" && ` ${line(opened.failure?.place ?? "", 120)}`}
              </summary>
              <Text text={text} className="code" />
            </details>
          )
        )
      })}
    </div>
  )
}
