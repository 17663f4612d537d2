import { useMemo } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import { mainSeat } from "../api/seat"
import type { ComparedTask, Comparison, RunInfo, Sample } from "../api/types"
import { count, figure, signed } from "../format"
import { useKeys } from "../keys"
import { Choose, Empty, ErrorLine, Figure, Panel, Pill, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { type Column, Table } from "../parts/Table"
import { to, useQuery } from "../router"
import { ordered, SHOWN, tally } from "./compared"
import { Sibling } from "./Sibling"
import { titles } from "./titles"

/** Screen 8: two runs on the same tasks. */
export default function Compare() {
  const [query, change] = useQuery()
  const runs = useData("runs", signal => api.runs(signal))
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""]
  const ready = a !== "" && b !== "" && a !== b
  const { data, error, slow } = useData(ready ? `compare ${a} ${b}` : null, signal => api.compare(a, b, signal))
  const swap = () => change({ a: b, b: a, first: query.get("second"), second: query.get("first") })
  useKeys([{ keys: ["x"], what: "Swap the two", run: swap }])
  const list = (runs.data?.runs ?? []).filter(run => !run.problem)
  return (
    <div className="screen">
      <div className="head">
        <h1>Compare</h1>
        <Pick
          label="First run"
          runs={list}
          value={a}
          onPick={key => change({ a: key, task: null, first: null, second: null })}
        />
        <span className="quiet">with</span>
        <Pick
          label="Second run"
          runs={list}
          value={b}
          onPick={key => change({ b: key, task: null, first: null, second: null })}
        />
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
      The difference is taken task by task, with an interval; every task is listed, with both transcripts.
    </Empty>
  )
}

function Pick(props: { label: string; runs: RunInfo[]; value: string; onPick: (key: string) => void }) {
  const names = titles(props.runs)
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
          {line(`${names.get(run.key)}${run.env ? ` (${run.env})` : ""}`, 80)}
        </option>
      ))}
    </select>
  )
}

function Compared({ data, runs }: { data: Comparison; runs: RunInfo[] }) {
  const [query, change] = useQuery()
  const called = titles(runs)
  const names: [string, string] = [line(called.get(data.a) ?? data.a, 60), line(called.get(data.b) ?? data.b, 60)]
  const [kind, sort, task] = [query.get("show") ?? "all", query.get("sort") ?? "-size", query.get("task")]
  const rows = useMemo(() => ordered(data.tasks, kind, sort), [data.tasks, kind, sort])
  const selected = rows.findIndex(one => one.task === task)
  const opened = data.tasks.find(one => one.task === task)
  const show = (at: number) => {
    const next = rows[Math.max(0, Math.min(rows.length - 1, at))]
    if (next && next.task !== task) change({ task: next.task, first: null, second: null })
  }
  const close = () => change({ task: null, first: null, second: null })
  useKeys([
    { keys: ["j", "ArrowDown"], what: "Next task", run: () => show(selected + 1) },
    { keys: ["k", "ArrowUp"], what: "Task before", run: () => show(selected - 1) },
    { keys: ["Escape"], what: "Close the transcripts", run: close },
  ])
  const kinds = [...SHOWN].map(([value, { label }]) => ({
    value,
    label: `${label} (${count(tally(data.tasks, value))})`,
  }))
  return (
    <>
      <div className="compared">
        <Panel title="Paired difference">
          <Whisker data={data} />
          <p className="pad verdict">{line(data.verdict, 400)}</p>
          {[data.a_about, data.b_about].map(
            (about, at) =>
              about && (
                <p key={at} className="quiet pad">
                  {names[at]}: {line(about, 200)}
                </p>
              ),
          )}
          <dl className="figures pad">
            <Figure name="Tasks in both" value={count(data.tasks.length)} />
            {data.missing > 0 && (
              <Figure name="In one run only, in no figure" value={count(data.missing)} tone="warn" />
            )}
          </dl>
        </Panel>
        <Panel title="Task by task">
          <Scatter data={data} names={names} />
        </Panel>
      </div>
      <Panel title={`Tasks (${count(rows.length)})`} className="flips">
        <div className="pad">
          <Choose label="Tasks" value={kind} choices={kinds} onChoose={value => change({ show: value })} />
        </div>
        {rows.length === 0 ? (
          <p className="quiet pad">No task is of this kind.</p>
        ) : (
          <Table
            label="Tasks"
            columns={columns(names)}
            total={rows.length}
            row={at => rows[at]}
            rowKey={one => one.task}
            selected={selected}
            onSelect={show}
            sort={sort}
            onSort={next => change({ sort: next })}
          />
        )}
      </Panel>
      {opened && <Transcripts key={opened.task} data={data} opened={opened} names={names} />}
    </>
  )
}

/** A mean with the number of samples it is over. */
function Mean({ value, samples }: { value: number; samples: number }) {
  return (
    <>
      {figure(value)} <span className="quiet">/ {count(samples)}</span>
    </>
  )
}

const FLIPS = { gained: ["only the second", "good"], lost: ["only the first", "bad"] } as const

const columns = (names: [string, string]): Column<ComparedTask>[] => [
  { key: "task", label: "Task", width: "minmax(160px, 2fr)", sortable: true, cell: one => line(one.task) },
  {
    key: "a",
    label: names[0],
    title: "Mean reward / scored samples",
    width: "minmax(112px, 1fr)",
    align: "right",
    sortable: true,
    cell: one => <Mean value={one.a} samples={one.a_samples} />,
  },
  {
    key: "b",
    label: names[1],
    title: "Mean reward / scored samples",
    width: "minmax(112px, 1fr)",
    align: "right",
    sortable: true,
    cell: one => <Mean value={one.b} samples={one.b_samples} />,
  },
  {
    key: "size",
    label: "Difference",
    title: "Second minus first, sorted by size",
    width: "112px",
    align: "right",
    sortable: true,
    cell: one => signed(one.b - one.a),
  },
  {
    key: "flip",
    label: "Passed",
    title: "At least half of the samples reach a reward of 1",
    width: "136px",
    sortable: true,
    cell: one => one.flip && <Pill tone={FLIPS[one.flip][1]}>{FLIPS[one.flip][0]}</Pill>,
  },
]

/** The difference as a dot with its interval, on an axis that holds zero. */
function Whisker({ data: { difference } }: { data: Comparison }) {
  const { mean } = difference
  const [low, high] = [difference.low ?? mean, difference.high ?? mean]
  const sized = difference.low !== null && difference.high !== null
  const reach = 1.15 * Math.max(Math.abs(low), Math.abs(high), 1e-9)
  const x = (value: number) => `${50 + (50 * value) / reach}%`
  const sure = sized && (low > 0 || high < 0)
  return (
    <div className="whisker">
      <p>
        <strong className={sure ? (mean > 0 ? "tone-good" : "tone-bad") : ""}>{signed(mean)}</strong>
        <span className="quiet">
          {sized ? `95% interval ${signed(low)} to ${signed(high)}` : "one task: no interval"}
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
function Scatter({ data: { tasks }, names }: { data: Comparison; names: [string, string] }) {
  const dots = tasks.slice(0, MOST_DOTS)
  if (dots.length === 0) return <p className="quiet pad">No task is scored in both runs.</p>
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
          <dd className="tone-good">{count(tally(tasks, "better"))}</dd>
        </div>
        <div>
          <dt>Alike</dt>
          <dd>{count(tally(tasks, "alike"))}</dd>
        </div>
        <div>
          <dt>Better in the first</dt>
          <dd className="tone-bad">{count(tally(tasks, "worse"))}</dd>
        </div>
        {dots.length < tasks.length && (
          <div>
            <dt>Drawn</dt>
            <dd>the first {count(dots.length)}</dd>
          </div>
        )}
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

/** Two rollouts of a task: those that show its difference, or the ones that were chosen. */
function Transcripts({ data, opened, names }: { data: Comparison; opened: ComparedTask; names: [string, string] }) {
  const [query, change] = useQuery()
  const { task } = opened
  const samples = useData(`samples ${data.a} ${data.b} ${task}`, signal => api.samples(data.a, data.b, task, signal))
  const chosen = (name: string, all: Sample[] | undefined, otherwise: number) => {
    const id = Number(query.get(name))
    return all?.some(one => one.id === id) ? id : otherwise
  }
  const first = chosen("first", samples.data?.a, opened.a_id)
  const second = chosen("second", samples.data?.b, opened.b_id)
  return (
    <Panel title={line(task, 120)} className="transcripts">
      {samples.error && <ErrorLine error={samples.error} />}
      <div className="transcript-sides">
        <Samples
          name={names[0]}
          mean={opened.a}
          samples={samples.data?.a ?? []}
          chosen={first}
          onChoose={id => change({ first: id })}
        />
        <Samples
          name={names[1]}
          mean={opened.b}
          samples={samples.data?.b ?? []}
          chosen={second}
          onChoose={id => change({ second: id })}
        />
      </div>
      <div className="siblings">
        <Transcript run={data.a} id={first} name={names[0]} />
        <Transcript run={data.b} id={second} name={names[1]} />
      </div>
    </Panel>
  )
}

interface SamplesProps {
  name: string
  mean: number
  samples: Sample[]
  chosen: number
  onChoose: (id: number) => void
}

/** All samples of a task in one run with their rewards, one of which is shown below. */
function Samples({ name, mean, samples, chosen, onChoose }: SamplesProps) {
  const scored = samples.filter(one => one.reward !== null).length
  return (
    <section aria-label={`Samples of ${name}`}>
      <p>
        <b>{name}</b> <span className="quiet">mean {figure(mean)}</span>
        {scored < samples.length && <span className="tone-warn"> {count(samples.length - scored)} unscored</span>}
      </p>
      <div className="sample-choice">
        {samples.map(one => (
          <button
            key={one.id}
            type="button"
            className="button small"
            aria-pressed={one.id === chosen}
            title={`Sample ${one.sample_index}, rollout ${one.id}, ${line(one.stop_reason, 40)}`}
            onClick={() => onChoose(one.id)}
          >
            {one.sample_index}: {one.reward === null ? "unscored" : figure(one.reward)}
          </button>
        ))}
      </div>
    </section>
  )
}

function Transcript({ run, id, name }: { run: string; id: number; name: string }) {
  const { data, error, slow } = useData(`rollout ${run} ${id}`, signal => api.rollout(run, id, signal))
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton /> : <div />
  const most = Math.abs(mainSeat(data)?.advantage ?? 0)
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
