import { useMemo } from "react"
import type { Entry, World } from "../api/world"
import { line } from "../parts/safe"
import { clock, named, spoken, told } from "./words"

const LANE = 64
const COLUMN = 188
const NODE = { width: 168, height: 44 }
const LEFT = 132

type Standing = "done" | "failed" | "pending" | "matched" | "missed" | "extra"

interface Node {
  key: string
  app: string
  label: string
  by: string
  standing: Standing
  /** Its entry; null for what never happened. */
  n: number | null
  time: number | null
  title: string
  parents: string[]
  column: number
}

const WORDS: Record<Standing, string> = {
  done: "happened",
  failed: "failed",
  pending: "never came",
  matched: "as expected",
  missed: "missed",
  extra: "nobody asked",
}

function standing(entry: Entry): Standing {
  if (entry.status === "pending") return "pending"
  if (entry.status === "failed") return "failed"
  if (entry.extra) return "extra"
  return entry.matched ? "matched" : "done"
}

function node(entry: Entry, key: string): Node {
  return {
    key,
    app: entry.app,
    label: spoken(entry.action),
    by: entry.by,
    standing: standing(entry),
    n: entry.n,
    time: entry.time,
    title: `${entry.id ?? key}: ${told(entry.args)}${entry.error ? `; ${entry.error}` : ""}`,
    parents: entry.parents,
    column: 0,
  }
}

/** The events and the agent's deeds, then what was expected and never done; each after all that it waits for. */
function nodes(world: World): Node[] {
  const expected = new Map(world.oracle.map(act => [act.id, act]))
  const out: Node[] = []
  for (const entry of world.entries) {
    const deed = entry.kind === "call" && (entry.writes || entry.matched || entry.extra)
    if (!(entry.kind === "event" || entry.kind === "condition" || deed)) continue
    const act = expected.get(entry.matched ?? entry.id ?? "")
    const found = node(entry, act?.id ?? entry.id ?? `line ${entry.n}`)
    out.push(act ? { ...found, parents: act.parents } : found)
  }
  const known = new Set(out.map(({ key }) => key))
  for (const act of world.oracle) {
    if (known.has(act.id)) continue
    const { id, app, action, args, parents, due, why } = act
    const title = `${id}: ${told(args)}${why ? `; ${why}` : ""}`
    out.push({
      key: id, app, label: spoken(action), by: "agent", standing: "missed", n: null, time: due, title, parents, column: 0,
    }) // biome-ignore format: one node
  }
  return out
}

/** More would be neither drawn in time nor read. */
const MOST = 400

/** Columns go with time; nothing stands left of what it waits for, and nothing upon another. */
function laid(world: World): { found: Node[]; lanes: string[]; columns: number; left: number } {
  const every = nodes(world).sort((a, b) => (a.n ?? 1e9) - (b.n ?? 1e9) || (a.time ?? 1e15) - (b.time ?? 1e15))
  const all = every.slice(0, MOST)
  const column = new Map<string, number>()
  const free = new Map<string, number>()
  let front = 0
  for (const one of all) {
    const parents = one.parents.map(name => (column.get(name) ?? -1) + 1)
    one.column = Math.max(free.get(one.app) ?? 0, one.n === null ? 0 : front, ...parents)
    if (one.n !== null) front = one.column
    column.set(one.key, one.column)
    free.set(one.app, one.column + 1)
  }
  const lanes = [...new Set(all.map(({ app }) => app))]
  return { found: all, lanes, columns: Math.max(0, ...all.map(one => one.column)) + 1, left: every.length - all.length }
}

interface GraphProps {
  world: World
  n: number
  onMove: (n: number) => void
}

/** What depended on what: events and deeds by time and app, what was expected drawn where it was due. */
export function Graph({ world, n, onMove }: GraphProps) {
  const { found, lanes, columns, left } = useMemo(() => laid(world), [world])
  const place = new Map(
    found.map(one => [one.key, { x: LEFT + one.column * COLUMN, y: 12 + lanes.indexOf(one.app) * LANE }]),
  )
  const [width, height] = [LEFT + columns * COLUMN + 8, lanes.length * LANE + 12]
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and by the keyboard too
    <section className="graph" aria-label="Events and what they wait for" tabIndex={0}>
      {left > 0 && (
        <p className="quiet pad">
          The first {MOST} of {MOST + left}.
        </p>
      )}
      {/* biome-ignore lint/a11y/noSvgWithoutTitle: a title of the whole would hide those of its parts */}
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        {lanes.map((app, at) => (
          <g key={app}>
            <line className="graph-lane" x1={0} x2={width} y1={at * LANE + LANE + 4} y2={at * LANE + LANE + 4} />
            <text className="graph-app" x={12} y={at * LANE + 38}>
              {line(named(app), 17)}
            </text>
          </g>
        ))}
        {found.flatMap(one =>
          one.parents.map(name => {
            const [from, to] = [place.get(name), place.get(one.key)]
            return from && to && <path key={`${name} ${one.key}`} className={edge(one, n)} d={curve(from, to)} />
          }),
        )}
        {found.map(one => (
          <Box key={one.key} node={one} at={place.get(one.key) ?? { x: 0, y: 0 }} n={n} onMove={onMove} />
        ))}
      </svg>
    </section>
  )
}

const edge = (one: Node, n: number): string => `edge${one.n === null || one.n > n ? " later" : ""}`

function curve(from: { x: number; y: number }, to: { x: number; y: number }): string {
  const [x1, y1] = [from.x + NODE.width, from.y + NODE.height / 2]
  const [x2, y2] = [to.x, to.y + NODE.height / 2]
  const bend = Math.max(12, (x2 - x1) / 2)
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
}

interface BoxProps extends Omit<GraphProps, "world"> {
  node: Node
  at: { x: number; y: number }
}

function Box({ node: one, at, n, onMove }: BoxProps) {
  const later = one.n === null || one.n > n
  const when = one.n === null ? WORDS[one.standing] : `${clock(one.time ?? 0)} \u00b7 ${WORDS[one.standing]}`
  const drawn = (
    <>
      <title>{`${line(one.label, 23)} ${when}, ${line(named(one.app), 40)}, ${line(one.title, 600)}`}</title>
      <rect width={NODE.width} height={NODE.height} rx={6} />
      <rect className="node-by" width={4} height={NODE.height} rx={2} />
      <text x={14} y={18} className="node-label">
        {line(one.label, 23)}
      </text>
      <text x={14} y={34} className="node-when">
        {when}
      </text>
    </>
  )
  const place = {
    className: `node node-${one.standing} by-${one.by}${later ? " later" : ""}${one.n === n ? " here" : ""}`,
    transform: `translate(${at.x} ${at.y})`,
  }
  const to = one.n
  if (to === null) return <g {...place}>{drawn}</g>
  return (
    // biome-ignore lint/a11y/useSemanticElements: there are no buttons in a drawing
    <g
      {...place}
      role="button"
      tabIndex={0}
      onClick={() => onMove(to)}
      onKeyDown={event => event.key === "Enter" && onMove(to)}
    >
      {drawn}
    </g>
  )
}
