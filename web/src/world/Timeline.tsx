import { type KeyboardEvent, type PointerEvent, useLayoutEffect, useMemo, useRef, useState } from "react"
import type { Entry, World } from "../api/world"
import { line } from "../parts/safe"
import { clock, day, named, said, span } from "./words"

const LANES = [
  { name: "Thinks, waits", y: 34 },
  { name: "Does", y: 62 },
  { name: "Happens", y: 90 },
  { name: "Notices", y: 118 },
] as const
const HEIGHT = 136
const LEFT = 104
const RIGHT = 36

const LANE_OF: Partial<Record<Entry["kind"], number>> = {
  think: 0,
  time: 0,
  wait: 0,
  call: 1,
  event: 2,
  condition: 2,
  stop: 2,
  turn: 1,
  notification: 3,
}

/** How an entry stands, for its colour. */
export function tone(entry: Entry): string {
  if (entry.status === "failed" || entry.extra) return "bad"
  if (entry.matched) return "good"
  if (entry.status === "pending") return "pending"
  return entry.kind === "call" ? (entry.writes ? "agent" : "read") : entry.by
}

/** Where each entry lies: one after the other, further apart the more time went by between them. */
function places(entries: Entry[], width: number): number[] {
  let at = 0
  let before: number | null = null
  const raw = entries.map(({ time }) => {
    const gap = before === null || time === null ? 0 : Math.max(0, time - before)
    before = time ?? before
    at += 1 + 1.2 * Math.log2(1 + gap)
    return at
  })
  const scale = (width - LEFT - RIGHT) / Math.max(1, at + 1)
  return raw.map(x => LEFT + x * scale)
}

function ticks(entries: Entry[], xs: number[]): { x: number; label: string }[] {
  const out: { x: number; label: string }[] = []
  let last = -1e9
  let before = Number.NaN
  for (const [at, { time }] of entries.entries()) {
    const x = xs[at] ?? 0
    if (time === null || time === before) continue
    before = time
    if (x - last < 64) continue
    out.push({ x, label: clock(time) })
    last = x
  }
  return out
}

interface TimelineProps {
  world: World
  n: number
  onMove: (n: number) => void
}

/** What happened when: a slider over the entries of the log, in four lanes. */
export function Timeline({ world, n, onMove }: TimelineProps) {
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(960)
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const observer = new ResizeObserver(() => setWidth(Math.max(480, element.clientWidth)))
    observer.observe(element)
    return () => observer.disconnect()
  }, [])
  const entries = useMemo(() => world.entries.filter(entry => entry.n !== null), [world])
  const xs = useMemo(() => places(entries, width), [entries, width])
  const last = entries.length - 1
  const now = n < 0 ? world.start : (entries[n]?.until ?? entries[n]?.time ?? world.start)
  const head = n < 0 ? LEFT : (xs[n] ?? LEFT)
  const nearest = (event: PointerEvent<HTMLDivElement>) => {
    const x = event.clientX - event.currentTarget.getBoundingClientRect().left
    let best = -1
    for (const [at, place] of xs.entries()) {
      if (Math.abs(place - x) < Math.abs((best < 0 ? LEFT : (xs[best] ?? 0)) - x)) best = at
    }
    onMove(best)
  }
  const keys: Record<string, number> = { Home: -1, End: last, PageUp: Math.max(-1, n - 10), PageDown: n + 10 }
  const press = (event: KeyboardEvent) => {
    const to = keys[event.key]
    if (to === undefined) return
    event.preventDefault()
    onMove(Math.min(last, to))
  }
  const here = entries[n]
  return (
    <div
      className="timeline"
      ref={box}
      role="slider"
      tabIndex={0}
      aria-label="Moment"
      aria-valuemin={-1}
      aria-valuemax={last}
      aria-valuenow={n}
      aria-valuetext={`${day(now)} ${clock(now)}, ${here ? line(said(here), 80) : "the start"}`}
      onKeyDown={press}
      onPointerDown={event => {
        event.currentTarget.setPointerCapture(event.pointerId)
        nearest(event)
      }}
      onPointerMove={event => event.buttons === 1 && nearest(event)}
    >
      <svg width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
        <rect className="timeline-past" x={LEFT} y={20} width={Math.max(0, head - LEFT)} height={HEIGHT - 24} />
        {LANES.map(({ name, y }) => (
          <g key={name}>
            <line className="timeline-lane" x1={LEFT} x2={width - RIGHT} y1={y} y2={y} />
            <text className="timeline-name" x={12} y={y + 4}>
              {name}
            </text>
          </g>
        ))}
        {ticks(entries, xs).map(({ x, label }) => (
          <text key={x} className="timeline-tick" x={x} y={13} textAnchor="middle">
            {label}
          </text>
        ))}
        {entries.map((entry, at) => (
          <Mark key={at} entry={entry} x={xs[at] ?? 0} end={endOf(entry, entries, xs)} later={at > n} here={at === n} />
        ))}
        <line className="timeline-head" x1={head} x2={head} y1={18} y2={HEIGHT - 4} />
        <path className="timeline-grip" d={`M${head - 5} 16h10l-5 7z`} />
      </svg>
    </div>
  )
}

/** Where what takes time is over: at the first entry from then on. */
function endOf(entry: Entry, entries: Entry[], xs: number[]): number {
  const from = entry.n ?? 0
  if (entry.until === undefined || entry.time === null || entry.until <= entry.time) return xs[from] ?? 0
  for (let at = from + 1; at < entries.length; at++) {
    if ((entries[at]?.time ?? 0) >= entry.until) return xs[at] ?? 0
  }
  return xs[xs.length - 1] ?? 0
}

interface MarkProps {
  entry: Entry
  x: number
  end: number
  later: boolean
  here: boolean
}

function Mark({ entry, x, end, later, here }: MarkProps) {
  const lane = LANE_OF[entry.kind]
  if (lane === undefined) return null
  const y = LANES[lane]?.y ?? 0
  const classes = `mark tone-of-${tone(entry)}${later ? " later" : ""}${here ? " here" : ""}`
  const title = `${entry.n}: ${clock(entry.time ?? 0)} ${line(entry.app === "world" ? "" : `${named(entry.app)} `, 40)}${line(said(entry), 120)}`
  return (
    <g className={classes}>
      <title>{entry.kind === "think" ? `${title} (${span(Number(entry.args.seconds))})` : title}</title>
      {lane === 0 && <rect x={x} y={y - 5} width={Math.max(3, end - x)} height={10} rx={2} className={entry.kind} />}
      {lane === 1 && <circle cx={x} cy={y} r={entry.writes ? 5.5 : 4} />}
      {lane === 2 && <rect x={x - 4.5} y={y - 4.5} width={9} height={9} transform={`rotate(45 ${x} ${y})`} />}
      {lane === 3 && <path d={`M${x - 5.5} ${y + 4.5}h11l-5.5 -10z`} />}
      {(entry.status === "failed" || entry.extra) && <path className="cross" d={cross(x, y)} />}
    </g>
  )
}

const cross = (x: number, y: number): string => `M${x - 2.5} ${y - 2.5}l5 5M${x + 2.5} ${y - 2.5}l-5 5`
