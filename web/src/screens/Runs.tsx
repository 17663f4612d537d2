import { useMemo, useState } from "react"
import { api, EXPORTED } from "../api/client"
import { useData } from "../api/data"
import { useNews } from "../api/stream"
import type { RunInfo } from "../api/types"
import { ago, count, duration, figure, percent } from "../format"
import { leave, useKeys } from "../keys"
import { Bar, Empty, ErrorLine, Link, Pill, Skeleton, type Tone } from "../parts/basics"
import { line } from "../parts/safe"
import { type Column, Table } from "../parts/Table"
import { go, to, useQuery } from "../router"
import { titles } from "./titles"

/** What a run is doing, as a word and a tone. */
export function standing(run: RunInfo): [string, Tone] {
  if (run.problem) return ["unreadable", "bad"]
  if (run.paused) return ["paused", "warn"]
  if (run.running) return ["running", "accent"]
  return run.finished ? ["finished", "good"] : ["stopped", "plain"]
}

export function State({ run }: { run: RunInfo }) {
  const [word, tone] = standing(run)
  return (
    <Pill tone={tone} title={run.problem ?? undefined}>
      {word}
    </Pill>
  )
}

function Progress({ run }: { run: RunInfo }) {
  if (run.step === null) return <span className="quiet">{"\u2013"}</span>
  return (
    <span className="progress">
      <span>
        {count(run.step)}
        {run.of !== null && <span className="quiet"> / {count(run.of)}</span>}
      </span>
      {run.of !== null && run.of > 0 && <Bar share={run.step / run.of} />}
    </span>
  )
}

/** The mean reward; where the code changed meanwhile, that of each version. */
export function Reward({ run }: { run: RunInfo }) {
  if (run.versions.length === 0) return figure(run.reward)
  const each = run.versions.map(one => `${one.digest.slice(0, 8)}: ${figure(one.reward)} (${count(one.scored)} scored)`)
  return (
    <span title={`The code changed during this evaluation. ${each.join("; ")}`}>
      {run.versions.map(one => figure(one.reward)).join(" | ")}
    </span>
  )
}

type Listed = { run: RunInfo; title: string; picked: boolean; pick: () => void }

const COLUMNS: (Column<Listed> & { by?: (run: RunInfo) => string | number | null })[] = [
  {
    key: "pick",
    label: "",
    width: "40px",
    cell: ({ run, picked, pick }) => (
      <input type="checkbox" checked={picked} onChange={pick} aria-label={`Pick ${line(run.name, 60)}`} />
    ),
  },
  {
    key: "name",
    label: "Run",
    width: "minmax(160px, 3fr)",
    by: run => run.name,
    cell: ({ run, title }) => (
      <Link to={to(["run", run.key])} className="strong" title={run.path}>
        {line(title, 80)}
      </Link>
    ),
  },
  { key: "state", label: "State", width: "104px", by: run => standing(run)[0], cell: ({ run }) => <State run={run} /> },
  {
    key: "env",
    label: "Environment",
    width: "minmax(96px, 1.5fr)",
    by: run => run.env,
    cell: ({ run }) => line(run.env || "\u2013"),
  },
  {
    key: "policy",
    label: "Policy",
    width: "minmax(96px, 1.5fr)",
    by: run => run.policy,
    cell: ({ run }) => line(run.policy || "\u2013"),
  },
  { key: "step", label: "Progress", width: "136px", by: run => run.step, cell: ({ run }) => <Progress run={run} /> },
  {
    key: "reward",
    label: "Reward",
    width: "104px",
    align: "right",
    by: run => run.reward,
    cell: ({ run }) => <Reward run={run} />,
  },
  {
    key: "coverage",
    label: "Scored",
    width: "72px",
    align: "right",
    by: run => run.coverage,
    cell: ({ run }) => percent(run.coverage),
  },
  {
    key: "rollouts",
    label: "Rollouts",
    width: "96px",
    align: "right",
    by: run => run.rollouts,
    cell: ({ run }) => count(run.rollouts),
  },
  {
    key: "errors",
    label: "Errors",
    width: "72px",
    align: "right",
    by: run => run.errors,
    cell: ({ run }) => <span className={run.errors ? "tone-bad" : "quiet"}>{count(run.errors)}</span>,
  },
  {
    key: "seconds",
    label: "Duration",
    width: "112px",
    align: "right",
    by: run => run.seconds,
    cell: ({ run }) => duration(run.seconds),
  },
  {
    key: "touched",
    label: "Changed",
    width: "104px",
    align: "right",
    by: run => run.touched,
    cell: ({ run }) => ago(run.touched),
  },
]

function ordered(runs: RunInfo[], sort: string): RunInfo[] {
  const falling = sort.startsWith("-")
  const by = COLUMNS.find(column => column.key === sort.replace(/^-/, ""))?.by
  if (!by) return runs
  const rank = (a: RunInfo, b: RunInfo): number => {
    const [x, y] = [by(a), by(b)]
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1
    const order = x < y ? -1 : x > y ? 1 : 0
    return falling ? -order : order
  }
  return [...runs].sort(rank)
}

/** Screen 1: every run, live. */
export function Runs() {
  const loaded = useData("runs", signal => api.runs(signal))
  const news = useNews()
  const [query, change] = useQuery()
  const [selected, setSelected] = useState(0)
  const [sort, words] = [query.get("sort") ?? "-touched", query.get("q") ?? ""]
  const picked = (query.get("pick") ?? "").split(",").filter(Boolean)
  const [runs, names] = useMemo(() => {
    const known = new Map((loaded.data?.runs ?? []).map(run => [run.key, run]))
    for (const [key, run] of news.runs) run ? known.set(key, run) : known.delete(key)
    const wanted = words.toLowerCase().split(/\s+/)
    const names = titles([...known.values()])
    const all = [...known.values()].filter(run => {
      const text = `${names.get(run.key)} ${run.env} ${run.policy} ${standing(run)[0]}`.toLowerCase()
      return wanted.every(word => text.includes(word))
    })
    return [ordered(all, sort), names]
  }, [loaded.data, news.runs, words, sort])
  const pick = (key: string) => {
    const next = picked.includes(key) ? picked.filter(one => one !== key) : [...picked, key]
    change({ pick: next.join(",") })
  }
  const together = () => {
    const [first, ...others] = picked
    if (first !== undefined) go(to(["run", first], { with: others.join(",") }))
  }
  const move = (by: number) => setSelected(old => Math.max(0, Math.min(runs.length - 1, old + by)))
  const here = runs[selected]
  useKeys([
    { keys: ["j", "ArrowDown"], what: "Next run", run: () => move(1) },
    { keys: ["k", "ArrowUp"], what: "Run before", run: () => move(-1) },
    { keys: ["Enter"], what: "Open the run", run: () => here && go(to(["run", here.key])) },
    { keys: ["x"], what: "Pick the run", run: () => here && pick(here.key) },
    { keys: ["o"], what: "Overlay the picked runs", run: together },
    {
      keys: ["c"],
      what: EXPORTED ? "" : "Compare two picked runs",
      run: () => picked.length === 2 && go(to(["compare"], { a: picked[0], b: picked[1] })),
    },
  ])
  if (loaded.error && !loaded.data) return <ErrorLine error={loaded.error} />
  if (!loaded.data) return loaded.slow ? <Skeleton lines={10} /> : null
  return (
    <div className="screen fill">
      <div className="head">
        <h1>Runs</h1>
        <input
          data-filter
          className="field"
          type="search"
          placeholder="Name, environment, policy, state"
          aria-label="Find runs"
          value={words}
          onChange={event => change({ q: event.target.value })}
          onKeyDown={leave}
        />
        <div className="actions">
          <button
            type="button"
            className="button"
            disabled={picked.length < 2}
            title={picked.length < 2 ? "Pick two or more runs (x)" : undefined}
            onClick={together}
          >
            Overlay
          </button>
          {!EXPORTED && (
            <button
              type="button"
              className="button"
              disabled={picked.length !== 2}
              title={picked.length === 2 ? undefined : "Pick two runs (x)"}
              onClick={() => go(to(["compare"], { a: picked[0], b: picked[1] }))}
            >
              Compare
            </button>
          )}
        </div>
      </div>
      {runs.length === 0 ? (
        <Nothing filtered={words !== ""} />
      ) : (
        <Table
          label="Runs"
          total={runs.length}
          selected={selected}
          onSelect={setSelected}
          sort={sort}
          onSort={next => change({ sort: next })}
          columns={COLUMNS.map(column => ({ ...column, sortable: column.by !== undefined }))}
          row={index => {
            const run = runs[index]
            return (
              run && {
                run,
                title: names.get(run.key) ?? run.name,
                picked: picked.includes(run.key),
                pick: () => pick(run.key),
              }
            )
          }}
          rowKey={({ run }) => run.key}
          open={({ run }) => to(["run", run.key])}
          instead={({ run }) =>
            run.problem
              ? {
                  from: 3,
                  node: (
                    <span className="tone-bad" title={run.problem}>
                      {line(run.problem, 400)}
                    </span>
                  ),
                }
              : null
          }
        />
      )}
    </div>
  )
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No run has all these words" />
  return (
    <Empty title="No runs here yet">
      <p>Whatever is played, evaluated or trained below this folder appears here as it is stored.</p>
      <pre>wander eval wordle{"\n"}wander train tictactoe</pre>
    </Empty>
  )
}
