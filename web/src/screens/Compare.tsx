import { useState } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import type { Comparison, Flip, RunInfo } from "../api/types"
import { count, figure, signed } from "../format"
import { useKeys } from "../keys"
import { Empty, ErrorLine, Figure, Panel, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { type Column, Table } from "../parts/Table"
import { to, useQuery } from "../router"
import { Sibling } from "./Sibling"
import "../styles/group.css"
import "../styles/compare.css"

/** Screen 8: two runs on the same tasks. */
export default function Compare() {
  const [query, change] = useQuery()
  const runs = useData("runs", signal => api.runs(signal))
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""]
  const ready = a !== "" && b !== "" && a !== b
  const { data, error, slow } = useData(ready ? `compare ${a} ${b}` : null, signal => api.compare(a, b, signal))
  const swap = () => change({ a: b, b: a })
  useKeys([{ keys: ["x"], what: "Swap the two", run: swap }])
  const list = (runs.data?.runs ?? []).filter(run => !run.problem)
  return (
    <div className="screen">
      <div className="head">
        <h1>Compare</h1>
        <Pick label="First run" runs={list} value={a} onPick={key => change({ a: key, task: null })} />
        <span className="quiet">with</span>
        <Pick label="Second run" runs={list} value={b} onPick={key => change({ b: key, task: null })} />
        <button type="button" className="button" onClick={swap} disabled={!ready}>
          Swap
        </button>
      </div>
      {a !== "" && a === b && <ErrorLine error="These are the same run: choose two." />}
      {error && !data && <ErrorLine error={error} />}
      {!ready && a !== b && <Choosing />}
      {!ready && a === "" && b === "" && <Choosing />}
      {ready && !data && slow && <Skeleton lines={10} />}
      {ready && data && <Compared data={data} runs={list} />}
    </div>
  )
}

function Choosing() {
  return (
    <Empty title="Choose two runs that played the same tasks">
      The difference is taken task by task, with an interval; tasks that flipped are listed, with both transcripts.
    </Empty>
  )
}

function Pick(props: { label: string; runs: RunInfo[]; value: string; onPick: (key: string) => void }) {
  return (
    <select
      className="field"
      aria-label={props.label}
      value={props.value}
      onChange={event => props.onPick(event.target.value)}
    >
      <option value="">Choose{"\u2026"}</option>
      {props.runs.map(run => (
        <option key={run.key} value={run.key}>
          {line(run.env ? `${run.name} (${run.env})` : run.name, 80)}
        </option>
      ))}
    </select>
  )
}

function Compared({ data, runs }: { data: Comparison; runs: RunInfo[] }) {
  const [query, change] = useQuery()
  const [selected, setSelected] = useState(-1)
  const name = (key: string) => line(runs.find(run => run.key === key)?.name ?? key, 60)
  const names: [string, string] = [name(data.a), name(data.b)]
  const flip = data.flips.find(one => one.task === query.get("task")) ?? null
  const show = (at: number) => {
    const next = data.flips[Math.max(0, Math.min(data.flips.length - 1, at))]
    setSelected(next ? data.flips.indexOf(next) : -1)
    if (next) change({ task: next.task })
  }
  useKeys([
    { keys: ["j", "ArrowDown"], what: "Next flipped task", run: () => show(selected + 1) },
    { keys: ["k", "ArrowUp"], what: "Flipped task before", run: () => show(selected - 1) },
    { keys: ["Escape"], what: "Close the transcripts", run: () => change({ task: null }) },
  ])
  const columns: Column<Flip>[] = [
    { key: "task", label: "Task", width: "minmax(160px, 2fr)", cell: one => line(one.task) },
    { key: "a", label: names[0], width: "minmax(96px, 1fr)", align: "right", cell: one => figure(one.a) },
    { key: "b", label: names[1], width: "minmax(96px, 1fr)", align: "right", cell: one => figure(one.b) },
    { key: "d", label: "Difference", width: "104px", align: "right", cell: one => signed((one.b ?? 0) - (one.a ?? 0)) },
  ]
  return (
    <>
      <div className="compared">
        <Panel title="Paired difference">
          <Whisker data={data} />
          <p className="pad verdict">{line(data.verdict, 400)}</p>
          <dl className="figures pad">
            <Figure name="Tasks in both" value={count(data.tasks)} />
            <Figure name="Flipped" value={count(data.flips.length)} />
          </dl>
        </Panel>
        <Panel title="Task by task">
          <Scatter data={data} names={names} />
        </Panel>
      </div>
      <Panel title={`Tasks that flipped (${count(data.flips.length)})`} className="flips">
        {data.flips.length === 0 ? (
          <p className="quiet pad">No task changed sides.</p>
        ) : (
          <Table
            label="Flipped tasks"
            columns={columns}
            total={data.flips.length}
            row={at => data.flips[at]}
            rowKey={one => one.task}
            selected={selected}
            onSelect={show}
          />
        )}
      </Panel>
      {flip && <Transcripts data={data} flip={flip} names={names} />}
    </>
  )
}

/** The difference as a dot with its interval, on an axis that holds zero. */
function Whisker({ data: { difference } }: { data: Comparison }) {
  if (!difference) return <p className="quiet pad">No task is scored in both runs.</p>
  const { mean, low, high } = difference
  const reach = 1.15 * Math.max(Math.abs(low), Math.abs(high), 1e-9)
  const x = (value: number) => `${50 + (50 * value) / reach}%`
  const sure = low > 0 || high < 0
  return (
    <div className="whisker">
      <p>
        <strong className={sure ? (mean > 0 ? "tone-good" : "tone-bad") : ""}>{signed(mean)}</strong>
        <span className="quiet">
          95% interval {signed(low)} to {signed(high)}
        </span>
      </p>
      <svg
        width="100%"
        height="48"
        role="img"
        aria-label={`Difference ${signed(mean)}, interval ${signed(low)} to ${signed(high)}`}
      >
        <line x1="0" x2="100%" y1="18" y2="18" className="axis" />
        <line x1="50%" x2="50%" y1="4" y2="32" className="zero" />
        <line x1={x(low)} x2={x(high)} y1="18" y2="18" className="interval" />
        <circle cx={x(mean)} cy="18" r="5" className="mean" />
        <text x="50%" y="46" textAnchor="middle">
          0
        </text>
        <text x={x(-reach)} y="46">
          {signed(-reach, 2)}
        </text>
        <text x={x(reach)} y="46" textAnchor="end">
          {signed(reach, 2)}
        </text>
      </svg>
    </div>
  )
}

const MOST_DOTS = 3000

/** Every task a dot: its reward in the first run across, in the second up; above the line the second is better. */
function Scatter({ data: { pairs }, names }: { data: Comparison; names: [string, string] }) {
  const dots = pairs.task.slice(0, MOST_DOTS).flatMap((task, at) => {
    const [a, b] = [pairs.a[at], pairs.b[at]]
    return typeof a === "number" && typeof b === "number" ? [{ task, a, b }] : []
  })
  if (dots.length === 0) return <p className="quiet pad">Nothing to draw: no task is scored in both runs.</p>
  const all = dots.flatMap(dot => [dot.a, dot.b])
  const [low, high] = [Math.min(...all), Math.max(...all)]
  const place = (value: number) => 8 + (184 * (value - low)) / (high - low || 1)
  const weights = new Map<string, { a: number; b: number; tasks: string[] }>()
  for (const { task, a, b } of dots) {
    const key = `${a} ${b}`
    weights.set(key, { a, b, tasks: [...(weights.get(key)?.tasks ?? []), task] })
  }
  return (
    <div className="scatter">
      <svg
        viewBox="0 0 200 200"
        role="img"
        aria-label={`Rewards of ${dots.length} tasks: ${names[0]} across, ${names[1]} up`}
      >
        <rect x="2" y="2" width="196" height="196" className="frame" />
        <line x1="8" y1="192" x2="192" y2="8" className="even" />
        {[...weights.values()].map(({ a, b, tasks }) => (
          <circle
            key={`${a} ${b}`}
            cx={place(a)}
            cy={200 - place(b)}
            r={Math.min(9, 1.6 + Math.sqrt(tasks.length) * 0.7)}
            className={a === b ? "same" : b > a ? "up" : "down"}
          >
            <title>{`${tasks.length === 1 ? line(tasks[0] ?? "", 80) : `${tasks.length} tasks`}: ${figure(a)}, ${figure(b)}`}</title>
          </circle>
        ))}
      </svg>
      <dl>
        <div>
          <dt>Across</dt>
          <dd>{names[0]}</dd>
        </div>
        <div>
          <dt>Up</dt>
          <dd>{names[1]}</dd>
        </div>
        <div>
          <dt>Better in the second</dt>
          <dd className="tone-good">{count(dots.filter(dot => dot.b > dot.a).length)}</dd>
        </div>
        <div>
          <dt>Alike</dt>
          <dd>{count(dots.filter(dot => dot.b === dot.a).length)}</dd>
        </div>
        <div>
          <dt>Better in the first</dt>
          <dd className="tone-bad">{count(dots.filter(dot => dot.b < dot.a).length)}</dd>
        </div>
        <div>
          <dt>Both axes</dt>
          <dd>
            {figure(low)} to {figure(high)}
          </dd>
        </div>
      </dl>
    </div>
  )
}

function Transcripts({ data, flip, names }: { data: Comparison; flip: Flip; names: [string, string] }) {
  return (
    <Panel title={line(flip.task, 120)} className="transcripts">
      <div className="siblings">
        <Transcript run={data.a} id={flip.a_id} name={names[0]} />
        <Transcript run={data.b} id={flip.b_id} name={names[1]} />
      </div>
    </Panel>
  )
}

function Transcript({ run, id, name }: { run: string; id: number | null; name: string }) {
  const { data, error, slow } = useData(id === null ? null : `rollout ${run} ${id}`, signal =>
    api.rollout(run, id ?? 0, signal),
  )
  if (id === null) return <p className="quiet pad">{name} has no rollout of this task.</p>
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton /> : <div />
  const most = Math.abs(data.trajectories[0]?.advantage ?? 0)
  return (
    <Sibling
      opened={data}
      title={`${name} #${id}`}
      address={to(["run", run, "rollout", id])}
      parting={null}
      most={most}
    />
  )
}
