import { useMemo, useState } from "react"
import { EXPORTED, Refused } from "../api/client"
import { useData } from "../api/data"
import * as worlds from "../api/world"
import type { World as Seen } from "../api/world"
import { useKeys } from "../keys"
import { Choose, ErrorLine, Panel, Pill, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { go, to, useQuery } from "../router"
import { Apps } from "../world/Apps"
import { Graph } from "../world/Graph"
import { counts, differences, freshRows, Past } from "../world/past"
import { Changes, DECISIONS, Detail, Judgement, Log, Notices } from "../world/Side"
import { Timeline } from "../world/Timeline"
import { clock, day, span } from "../world/words"

const SIDES = { log: "Log", changes: "Changes", told: "Notices", verdict: "Verdict" }

/** Screen 6: the world of a rollout, at any moment; shown by the rollout's screen under `?view=world`. */
export default function World({ run, id }: { run: string; id: number }) {
  const { data, error, slow } = useData(`world ${run} ${id}`, signal => worlds.world(run, id, signal))
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={14} /> : null
  return <Moments key={`${run} ${id}`} run={run} id={id} world={data} />
}

/** The entry that the address names, within what there is; the last one unless it says. */
function useMoment(world: Seen): [number, (n: number) => void] {
  const [query, change] = useQuery()
  const last = world.entries.filter(entry => entry.n !== null).length - 1
  const asked = query.get("n")
  const n = asked === null || !/^-?\d+$/.test(asked) ? last : Math.max(-1, Math.min(last, Number(asked)))
  return [n, next => change({ n: Math.max(-1, Math.min(last, next)) })]
}

function Moments({ run, id, world }: { run: string; id: number; world: Seen }) {
  const [query, change] = useQuery()
  const [n, move] = useMoment(world)
  const asked = query.get("side") ?? "log"
  const side = Object.hasOwn(SIDES, asked) ? asked : "log"
  const from = query.has("from") ? Number(query.get("from")) : null
  const past = useMemo(() => (world.initial ? new Past(world.initial.apps, world.entries, world.known) : null), [world])
  const states = past?.at(n) ?? {}
  const before = past?.at(from ?? n - 1) ?? {}
  const found = useMemo(() => differences(before, states), [before, states])
  const changed = useMemo(() => counts(found), [found])
  const entry = world.entries.find(one => one.n === n)
  const now = entry ? (entry.until ?? entry.time ?? world.start) : world.start
  const calls = world.entries.filter(one => one.kind === "call").map(one => one.n ?? 0)
  const app = query.get("app") ?? entry?.app ?? ""
  useKeys([
    { keys: ["ArrowRight", "l"], what: "A line on", run: () => move(n + 1) },
    { keys: ["ArrowLeft", "h"], what: "A line back", run: () => move(n - 1) },
    {
      keys: ["Shift+ArrowRight", "j"],
      what: "To the agent's next action",
      run: () => move(calls.find(at => at > n) ?? n),
    },
    {
      keys: ["Shift+ArrowLeft", "k"],
      what: "To the agent's previous action",
      run: () => move(calls.findLast(at => at < n) ?? n),
    },
    { keys: ["Home"], what: "To the start", run: () => move(-1) },
    { keys: ["End"], what: "To the end", run: () => move(1e9) },
    { keys: ["d"], what: "What changed", run: () => change({ side: "changes" }) },
    { keys: ["y"], what: "Verdict", run: () => change({ side: "verdict" }) },
  ])
  const shown = past && n > world.known
  return (
    <div className="world">
      <Panel
        className="world-time"
        title={<When world={world} n={n} now={now} />}
        actions={
          <>
            <Steps n={n} move={move} />
            {!EXPORTED && past && <Onward run={run} id={id} n={n} world={world} />}
          </>
        }
      >
        <Timeline world={world} n={n} onMove={move} />
        <Legend />
      </Panel>
      {world.why && (
        <p className="world-why" role="note">
          {line(world.why, 600)}
        </p>
      )}
      <div className="world-panes">
        <Panel className="world-apps">
          {past ? (
            <>
              {shown && <p className="quiet pad">The apps are shown as they were after line {world.known}.</p>}
              <Apps
                states={states}
                kinds={world.kinds}
                now={now}
                app={Object.hasOwn(states, app) ? app : "AgentUserInterface"}
                open={query.get("open") ?? ""}
                onApp={next => change({ app: next, open: null })}
                onOpen={what => change({ app: Object.hasOwn(states, app) ? app : null, open: what })}
                changed={changed}
                fresh={name => freshRows(found, name)}
              />
            </>
          ) : (
            <p className="quiet pad">Without its scenario only the log of this world can be shown.</p>
          )}
        </Panel>
        <Panel
          className="world-side"
          title={
            <Choose
              label="Pane"
              value={side}
              onChoose={next => change({ side: next })}
              choices={Object.entries(SIDES).map(([value, label]) => ({ value, label }))}
            />
          }
        >
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and by the keyboard too */}
          <section className="world-scroll" tabIndex={0} aria-label={SIDES[side as keyof typeof SIDES] ?? "Log"}>
            {side === "changes" ? (
              <Changes found={found} from={from} n={n} onFrom={next => change({ from: next })} />
            ) : side === "told" ? (
              <Notices world={world} n={n} onMove={move} />
            ) : side === "verdict" ? (
              <Judgement world={world} onMove={move} />
            ) : (
              <Log world={world} n={n} onMove={move} />
            )}
          </section>
          {side === "log" && <Detail entry={entry} />}
        </Panel>
      </div>
      <Panel title="What waited for what">
        <Graph world={world} n={n} onMove={move} />
      </Panel>
    </div>
  )
}

function When({ world, n, now }: { world: Seen; n: number; now: number }) {
  const { verdict } = world
  const [word, kind] = DECISIONS.get(verdict?.decision ?? "") ?? ["", "plain"]
  const last = world.entries.filter(entry => entry.n !== null).length - 1
  return (
    <span className="world-when">
      <strong>{clock(now)}</strong>
      <span className="quiet">
        {day(now)} UTC {"\u00b7"} {span(Math.max(0, now - world.start))} of {span(world.end - world.start)} {"\u00b7"}{" "}
        {n < 0 ? "the start" : `line ${n} of ${last}`}
      </span>
      {verdict && <Pill tone={kind}>{word}</Pill>}
    </span>
  )
}

function Steps({ n, move }: { n: number; move: (n: number) => void }) {
  const step = (by: number, sign: string, label: string) => (
    <button type="button" className="button small" onClick={() => move(n + by)} aria-label={label} title={label}>
      {sign}
    </button>
  )
  return (
    <>
      {step(-1e9, "\u21e4", "To the start (Home)")}
      {step(-1, "\u2190", "A line back (left)")}
      {step(1, "\u2192", "A line on (right)")}
      {step(1e9, "\u21e5", "To the end (End)")}
    </>
  )
}

/** Go on from the next decision at or after this moment, by hand or with a policy: a game of its own. */
function Onward({ run, id, n, world }: { run: string; id: number; n: number; world: Seen }) {
  const [policy, setPolicy] = useState("hand")
  const [error, setError] = useState<Refused | null>(null)
  const [busy, setBusy] = useState(false)
  const offer = useData("offer", signal => worlds.offer(signal))
  const players = offer.data?.environments.find(one => one.world)?.players ?? []
  const next = world.decisions.find(at => at >= n)
  const branch = async () => {
    setBusy(true)
    try {
      const { session } = await worlds.branch(run, id, n, policy)
      go(to(["play"], { session: session.id }))
    } catch (refused) {
      setError(refused instanceof Refused ? refused : new Refused(String(refused), 0))
    } finally {
      setBusy(false)
    }
  }
  return (
    <span className="onward">
      <select
        className="field"
        aria-label="Who goes on"
        value={policy}
        onChange={event => setPolicy(event.target.value)}
      >
        <option value="hand">by hand</option>
        {players.map(name => (
          <option key={name}>{name}</option>
        ))}
        {offer.data?.checkpoints.map(({ name, path }) => (
          <option key={path} value={path}>
            {line(name, 60)}
          </option>
        ))}
      </select>
      <button
        type="button"
        className="button"
        disabled={next === undefined || busy}
        onClick={branch}
        title={next === undefined ? "The agent decides nothing after this moment" : `From the decision in line ${next}`}
      >
        Branch here
      </button>
      {error && <ErrorLine error={error} />}
    </span>
  )
}

const MARKS: [string, string][] = [
  ["think", "thinks"],
  ["wait", "waits"],
  ["good", "done as expected"],
  ["agent", "other write"],
  ["read", "read"],
  ["user", "the user"],
  ["env", "the environment"],
  ["bad", "failed, or nobody asked"],
]

function Legend() {
  return (
    <ul className="marks-legend" aria-label="Marks">
      {MARKS.map(([name, label]) => (
        <li key={name}>
          <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
            <g className={`mark tone-of-${name}`}>
              {name === "think" || name === "wait" ? (
                <rect x="0" y="4" width="14" height="7" rx="2" className={name} />
              ) : name === "user" || name === "env" ? (
                <rect x="3" y="3" width="8" height="8" transform="rotate(45 7 7)" />
              ) : (
                <circle cx="7" cy="7" r={name === "read" ? 4 : 5.5} />
              )}
            </g>
          </svg>
          {label}
        </li>
      ))}
    </ul>
  )
}
