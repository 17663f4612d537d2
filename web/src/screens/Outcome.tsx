import { api } from "../api/client"
import { useData } from "../api/data"
import type { Row, Run, Stage } from "../api/types"
import { count, figure, percent } from "../format"
import { Link, Panel } from "../parts/basics"
import { line } from "../parts/safe"
import { to } from "../router"

const SAMPLE = 1000
const BINS = 20

/** How a run's rollouts ended, by stage, and how an evaluation's rewards lie. */
export function Outcome({ run }: { run: Run }) {
  const stages = run.stages.filter(stage => stage.rollouts > 0)
  if (stages.length === 0) return null
  return (
    <div className="outcome">
      <Panel title="How rollouts ended">
        {stages.map(stage => (
          <Ends key={stage.name} run={run.key} stage={stage} alone={stages.length === 1} />
        ))}
      </Panel>
      {run.kind !== "training" && <Rewards run={run} />}
    </div>
  )
}

function Ends({ run, stage, alone }: { run: string; stage: Stage; alone: boolean }) {
  return (
    <div className="ends">
      {!alone && <h3>{line(stage.name, 60)}</h3>}
      {Object.entries(stage.statuses)
        .sort(([, a], [, b]) => b - a)
        .map(([status, n]) => (
          <Link
            key={status}
            to={to(["run", run, "rollouts"], {
              filter: `stage == ${JSON.stringify(stage.name)} and status == ${JSON.stringify(status)}`,
            })}
            className={`end end-${status}`}
          >
            <span>{status}</span>
            <span className="end-bar">
              <i style={{ width: `${(100 * n) / stage.rollouts}%` }} />
            </span>
            <span className="right">{count(n)}</span>
            <span className="right quiet">{percent(n / stage.rollouts)}</span>
          </Link>
        ))}
    </div>
  )
}

function bins(rows: Row[]): { low: number; width: number; counts: number[] } {
  const rewards = rows.flatMap(row => (row.reward === null ? [] : [row.reward]))
  const [low, high] = [Math.min(...rewards), Math.max(...rewards)]
  const width = (high - low || 1) / BINS
  const counts = new Array<number>(BINS).fill(0)
  for (const reward of rewards) {
    const at = Math.min(BINS - 1, Math.floor((reward - low) / width))
    counts[at] = (counts[at] ?? 0) + 1
  }
  return { low, width, counts }
}

function Rewards({ run }: { run: Run }) {
  const ask = { filter: "reward != null", sort: "id", offset: 0, limit: SAMPLE }
  const { data } = useData(`rewards ${run.key}`, signal => api.rollouts(run.key, ask, signal), run.rollouts)
  if (!data || data.rows.length === 0) return null
  const { low, width, counts } = bins(data.rows)
  const most = Math.max(...counts)
  const of = data.total > SAMPLE ? `first ${count(SAMPLE)} of ${count(data.total)}` : `${count(data.total)} scored`
  return (
    <Panel title="Rewards" actions={<span className="quiet pad-right">{of}</span>}>
      <div
        className="histogram"
        role="img"
        aria-label={`Histogram of rewards from ${figure(low)} to ${figure(low + width * BINS)}`}
      >
        {counts.map((n, at) => (
          <i
            key={at}
            style={{ height: `${(100 * n) / most}%` }}
            title={`${figure(low + at * width)} to ${figure(low + (at + 1) * width)}: ${count(n)}`}
          />
        ))}
      </div>
      <div className="histogram-ends quiet">
        <span>{figure(low)}</span>
        <span>{figure(low + width * BINS)}</span>
      </div>
    </Panel>
  )
}
