import { api } from "../api/client"
import { useData } from "../api/data"
import type { Estimate, Report, Result, Run } from "../api/types"
import { count, duration, figure, percent } from "../format"
import { ErrorLine, Panel, Pill, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { Safe } from "../parts/Text"
import { useQuery } from "../router"
import { own } from "../own"

type Named = [string, Estimate]

/** What an evaluation found, as `wander eval` prints it: figures with intervals, errors, usage, and a breakdown. */
export function EvaluationResult({ run }: { run: Run }) {
  const [query, change] = useQuery()
  const by = query.get("by") ?? ""
  const news = run.running ? Math.floor(run.rollouts / 50) : `${run.finished} ${run.rollouts}`
  const { data, error, slow } = useData(`result ${run.key} ${by}`, signal => api.result(run.key, by, signal), news)
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={8} /> : null
  const versions = Object.entries(data.report.by_code ?? {})
  return (
    <>
      {versions.length > 0 && <Changed result={data} />}
      {versions.length === 0 && <Figures title="Result" report={data.report} complete={data.complete} />}
      {versions.map(([code, report]) => (
        <Figures key={code} title={`Made by ${code.slice(0, 8)}`} report={report} complete={data.complete} />
      ))}
      <Breakdowns result={data} by={by} onBy={next => change({ by: next })} />
      <Course report={data.report} />
    </>
  )
}

/** Several versions of the code made these rollouts: what changed, and that nothing is averaged over them. */
function Changed({ result: { report, changes } }: { result: Result }) {
  const codes = Object.keys(report.by_code ?? {})
  const changed = codes.flatMap(code => own(changes, code) ?? [])
  return (
    <div className="note-line" role="note">
      <Pill tone="warn">{codes.length} versions</Pill>
      <span>
        The code changed during this evaluation{changed.length > 0 && ": "}
        <Safe text={[...new Set(changed)].join(", ")} />. Each version has its own figures; no mean goes over both.
      </span>
    </div>
  )
}

function estimates(report: Report): { rewards: Named[]; passes: Named[]; parts: Named[]; metrics: Named[] } {
  const seats = Object.entries(report.rewards)
  const rewards = seats.map(([seat, one]): Named => [seats.length === 1 ? "reward" : `${seat}: reward`, one])
  const [passes, parts, metrics] = [report.passes, report.parts, report.metrics].map(one => Object.entries(one))
  return { rewards, passes: passes ?? [], parts: parts ?? [], metrics: metrics ?? [] }
}

export const interval = ({ low, high }: Estimate): string =>
  low === null || high === null ? "\u2013" : `${figure(low)} to ${figure(high)}`

function Figures({ title, report, complete }: { title: string; report: Report; complete: boolean }) {
  const { rewards, passes, parts, metrics } = estimates(report)
  const sections: [string, Named[]][] = [
    ["", [...rewards, ...passes]],
    ["Parts, before weighting", parts],
    ["Metrics, never trained on", metrics],
  ]
  const shown = sections.filter(([, rows]) => rows.length > 0)
  return (
    <Panel title={title} actions={!complete && <span className="quiet pad-right">of the rollouts so far</span>}>
      {shown.length === 0 && <p className="quiet pad">Nothing was scored.</p>}
      {shown.length > 0 && (
        <table className="result">
          <thead>
            <tr>
              <th scope="col">Figure</th>
              <th scope="col">Mean</th>
              <th scope="col">95% interval</th>
              <th scope="col">Over</th>
              <th scope="col" className="result-line">
                <span className="sr-only">Interval drawn</span>
              </th>
            </tr>
          </thead>
          {shown.map(([name, rows]) => (
            <tbody key={name}>
              {name && (
                <tr>
                  <th scope="rowgroup" colSpan={5} className="result-part">
                    {name}
                  </th>
                </tr>
              )}
              {rows.map(row => (
                <Row key={row[0]} row={row} rows={rows} ofTasks={passes.includes(row)} />
              ))}
            </tbody>
          ))}
        </table>
      )}
    </Panel>
  )
}

/** An estimate and its interval, drawn on the scale of all of them. */
export function Interval({ one, all }: { one: Estimate; all: Estimate[] }) {
  const ends = all.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value])
  const [least, most] = [Math.min(0, ...ends), Math.max(1, ...ends)]
  const at = (value: number) => `${(100 * (value - least)) / (most - least)}%`
  const [low, high] = [one.low ?? one.value, one.high ?? one.value]
  return (
    <svg width="100%" height="16" aria-hidden="true">
      <line x1={at(least)} x2={at(most)} y1="8" y2="8" className="axis" />
      <line x1={at(low)} x2={at(high)} y1="8" y2="8" className="interval" />
      <circle cx={at(one.value)} cy="8" r="3.5" className="mean" />
    </svg>
  )
}

/** One figure with its interval. */
function Row({ row: [name, one], rows, ofTasks }: { row: Named; rows: Named[]; ofTasks: boolean }) {
  return (
    <tr>
      <th scope="row">
        <Safe text={name} />
      </th>
      <td>
        <b>{figure(one.value)}</b>
      </td>
      <td>{interval(one)}</td>
      <td className="quiet">
        {ofTasks ? `${count(one.count)} tasks` : `${count(one.count)} rollouts, ${count(one.clusters)} tasks`}
      </td>
      <td className="result-line">
        <Interval one={one} all={rows.map(([, other]) => other)} />
      </td>
    </tr>
  )
}

function Breakdowns({ result, by, onBy }: { result: Result; by: string; onBy: (by: string) => void }) {
  const versions = Object.entries(result.report.by_code ?? {})
  const all: [string, Report][] = versions.length > 0 ? versions : [["", result.report]]
  const shown = all.filter(([, report]) => Object.keys(report.breakdown ?? {}).length > 0)
  const current = by || shown[0]?.[1].group_by || ""
  if (result.keys.length === 0 && shown.length === 0) return null
  const keys = [...new Set([...(current ? [current] : []), ...result.keys])]
  const choice = (
    <label className="smoothing">
      By
      <select className="field" value={current} onChange={event => onBy(event.target.value)}>
        <option value="">nothing</option>
        {keys.map(key => (
          <option key={key} value={key}>
            {line(key, 60)}
          </option>
        ))}
      </select>
    </label>
  )
  return (
    <Panel title="Breakdown" actions={choice}>
      {shown.length === 0 && (
        <p className="quiet pad">Choose a key of the tasks' info to see the figures of each value.</p>
      )}
      {shown.map(([code, report]) => (
        <Breakdown key={code} code={code} report={report} />
      ))}
    </Panel>
  )
}

/** A row for every value of a key; the figures stand beside each other. */
function Breakdown({ code, report }: { code: string; report: Report }) {
  const parts = Object.entries(report.breakdown ?? {}).map(([value, part]) => {
    const { rewards, passes, parts, metrics } = estimates(part)
    return { value, part, figures: new Map([...rewards, ...passes, ...parts, ...metrics]) }
  })
  const names = [...new Set(parts.flatMap(({ figures }) => [...figures.keys()]))]
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
    <section className="wide" aria-label={code ? `Breakdown of version ${code.slice(0, 8)}` : "Breakdown"} tabIndex={0}>
      {code && <h3 className="pad">Made by {code.slice(0, 8)}</h3>}
      <table className="result">
        <thead>
          <tr>
            <th scope="col">
              <Safe text={report.group_by ?? ""} />
            </th>
            <th scope="col">scored</th>
            {names.map(name => (
              <th key={name} scope="col">
                <Safe text={name} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {parts.map(({ value, part, figures }) => (
            <tr key={value}>
              <th scope="row">
                <Safe text={value} />
              </th>
              <td className="quiet">
                {count(part.scored)} of {count(part.played)}
              </td>
              {names.map(name => {
                const one = figures.get(name)
                return (
                  <td key={name} title={one && `95% interval ${interval(one)}`}>
                    {figure(one?.value)}
                    {one && <small>{interval(one)}</small>}
                  </td>
                )
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

const notStarted = ({ not_started = 0, stopped = "" }: Report): string =>
  `${count(not_started)}${stopped && `: ${line(stopped, 200)}`}`

/** What failed and why, how rollouts ended, and what it all took. */
function Course({ report }: { report: Report }) {
  const { usage } = report
  const errors = Object.entries(report.errors)
  const stops = Object.entries(report.stops).filter(([name]) => !Object.hasOwn(report.errors, name))
  const latency = Object.entries(usage.latency).map(([name, seconds]) => `${name} ${duration(seconds)}`)
  const known = usage.tokens_in + usage.tokens_out > 0
  const facts: [string, string][] = [
    [
      "Scored",
      `${count(report.scored)} of ${count(report.played)} (${percent(report.played ? report.scored / report.played : null)})`,
    ],
    ...stops.map(([name, n]): [string, string] => [`Ended: ${line(name, 60)}`, count(n)]),
    ...(report.not_started ? ([["Not started", notStarted(report)]] as [string, string][]) : []),
    ["Turns", count(usage.turns)],
    ["Tokens", known ? `${count(usage.tokens_in)} prompt, ${count(usage.tokens_out)} completion` : "unknown"],
    ...(latency.length > 0 ? ([["Time of a rollout", latency.join(", ")]] as [string, string][]) : []),
    ...(usage.dollars === null ? [] : ([["Cost", `$${usage.dollars.toFixed(4)}`]] as [string, string][])),
  ]
  return (
    <Panel title="Errors and usage">
      {errors.length > 0 && (
        <ul className="error-list">
          {errors.map(([name, { count: n, first, places }]) => (
            <li key={name}>
              <Pill tone="bad">
                {line(name, 60)} {count(n)}
              </Pill>
              <Safe text={first} />
              {Object.entries(places ?? {}).map(([place, times]) => (
                <span className="quiet" key={place}>
                  {" "}
                  at {line(place, 120)}: {count(times)}
                </span>
              ))}
            </li>
          ))}
        </ul>
      )}
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Panel>
  )
}
