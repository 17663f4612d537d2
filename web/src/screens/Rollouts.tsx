import { useEffect, useRef, useState } from "react"
import type { Refused } from "../api/client"
import { type Rows, useRows } from "../api/pages"
import { useRun } from "../api/run"
import { useTick } from "../api/stream"
import type { Field, Row } from "../api/types"
import { count, duration, figure, signed } from "../format"
import { leave, useKeys } from "../keys"
import { Empty, ErrorLine, Link, Pill, Skeleton, type Tone } from "../parts/basics"
import { line } from "../parts/safe"
import { type Column, Table } from "../parts/Table"
import { go, to, useQuery } from "../router"
import { NotBegun } from "./NotBegun"
import { completed, offered } from "./offered"
import { RunHead } from "./RunHead"

const TONES = new Map<string, Tone>([
  ["done", "plain"],
  ["truncated", "warn"],
  ["error", "bad"],
])

export function Status({ status, stop }: { status: string; stop: string }) {
  return <Pill tone={TONES.get(status) ?? "plain"}>{status === stop ? status : line(stop, 40)}</Pill>
}

/** Whether the policy reported tokens: scripted ones do not, which is not the same as none. */
export const counted = (row: Row): boolean => row.tokens_in > 0 || row.tokens_out > 0

const UNKNOWN = <span className="quiet">unknown</span>

const text = (value: string | null | undefined) =>
  value ? line(value, 160) : <span className="quiet">{"\u2013"}</span>

const columns = (run: string): Column<Row>[] => [
  { key: "id", label: "Id", width: "88px", cell: row => count(row.id) },
  { key: "stage", label: "Stage", width: "88px", cell: row => line(row.stage, 40) },
  { key: "step", label: "Step", width: "56px", align: "right", cell: row => count(row.step) },
  {
    key: "group",
    label: "Group",
    width: "64px",
    align: "right",
    title: "The group (rollouts of one task) of this rollout",
    cell: row => (
      <Link
        to={to(["run", run, "group", row.stage, row.step, row.group])}
        label={`Group ${row.group} of step ${row.step}`}
      >
        {count(row.group)}
      </Link>
    ),
  },
  { key: "task", label: "Task", width: "minmax(160px, 1.4fr)", cell: row => line(row.task) },
  { key: "answer", label: "Answer", width: "minmax(120px, 2fr)", cell: row => text(row.answer) },
  { key: "target", label: "Target", width: "minmax(64px, 0.8fr)", cell: row => text(row.target) },
  { key: "reward", label: "Reward", width: "80px", align: "right", cell: row => figure(row.reward) },
  { key: "advantage", label: "Advantage", width: "96px", align: "right", cell: row => signed(row.advantage) },
  {
    key: "stop_reason",
    label: "Stop",
    width: "112px",
    cell: row => <Status status={row.status} stop={row.stop_reason} />,
  },
  { key: "turns", label: "Turns", width: "56px", align: "right", cell: row => count(row.turns) },
  {
    key: "tokens_in",
    label: "Prompt",
    width: "80px",
    align: "right",
    title: "Prompt tokens",
    cell: row => (counted(row) ? count(row.tokens_in) : UNKNOWN),
  },
  {
    key: "tokens_out",
    label: "Completion",
    width: "104px",
    align: "right",
    title: "Completion tokens",
    cell: row => (counted(row) ? count(row.tokens_out) : UNKNOWN),
  },
  {
    key: "seconds",
    label: "Duration",
    width: "80px",
    align: "right",
    cell: row => (row.seconds > 0 ? duration(row.seconds) : UNKNOWN),
  },
]

/** What a row says beside its fields. */
const UNSORTED = ["answer", "target"]

/** Screen 3: every rollout of a run, however many there are. */
export default function Rollouts({ run: key }: { run: string }) {
  const { data: run, error } = useRun(key)
  const tick = useTick(key)
  const [query, change] = useQuery()
  const [filter, sort] = [query.get("filter") ?? "", query.get("sort") ?? "-id"]
  const rows = useRows(key, filter, sort, tick?.last_id)
  const [selected, setSelected] = useState(Number(query.get("at") ?? 0) || 0)
  const total = rows.total ?? 0
  useEffect(() => {
    const settled = setTimeout(() => change({ at: selected || null }), 300)
    return () => clearTimeout(settled)
  }, [selected, change])
  const address = (row: Row, at: number) =>
    to(["run", key, "rollout", row.id], { filter, sort, at, read: query.get("read") })
  const move = (by: number) => setSelected(old => Math.max(0, Math.min(total - 1, old + by)))
  const here = rows.row(selected)
  useKeys([
    { keys: ["j", "ArrowDown"], what: "Next rollout", run: () => move(1) },
    { keys: ["k", "ArrowUp"], what: "Rollout before", run: () => move(-1) },
    { keys: ["PageDown"], what: "A page on", run: () => move(20) },
    { keys: ["PageUp"], what: "A page back", run: () => move(-20) },
    { keys: ["g g", "Home"], what: "To the first", run: () => move(-total) },
    { keys: ["G", "End"], what: "To the last", run: () => move(total) },
    { keys: ["Enter"], what: "Open the rollout", run: () => here && go(address(here, selected)) },
    {
      keys: ["u"],
      what: "Open its group",
      run: () => here && go(to(["run", key, "group", here.stage, here.step, here.group])),
    },
  ])
  if (error && !run) return <NotBegun run={key} error={error} />
  const fields = run?.fields ?? []
  const list = columns(key).map(column => ({ ...column, sortable: !UNSORTED.includes(column.key) }))
  const sorted = (next: string) => {
    setSelected(0)
    change({ sort: next, at: null })
  }
  return (
    <div className="screen fill">
      <RunHead run={run ?? key} here="rollouts" />
      <FilterBox
        key={filter}
        filter={filter}
        error={rows.error}
        fields={fields}
        total={rows.error ? null : rows.total}
        onFilter={next => {
          setSelected(0)
          change({ filter: next, at: null }, { step: true })
        }}
      />
      {rows.total === null && rows.slow && <Skeleton lines={12} />}
      {rows.error || rows.total === null ? null : rows.total === 0 ? (
        <Empty title={filter ? "No rollout passes this filter" : "No rollouts are stored yet"}>
          {filter ? "Take a condition away, or look at all of them." : "They appear here as they are stored."}
        </Empty>
      ) : (
        <Table
          label="Rollouts"
          columns={list}
          total={total}
          row={rows.row}
          onSight={rows.sight}
          rowKey={row => row.id}
          rowHeight={28}
          open={address}
          selected={selected}
          onSelect={setSelected}
          sort={sort}
          onSort={sorted}
          busy={rows.asking}
        />
      )}
    </div>
  )
}

interface FilterProps {
  filter: string
  error: Rows["error"]
  fields: Field[]
  total: number | null
  onFilter: (filter: string) => void
}

function FilterBox({ filter, error, fields, total, onFilter }: FilterProps) {
  const [draft, setDraft] = useState(filter)
  const box = useRef<HTMLInputElement>(null)
  return (
    <form
      className="filter"
      onSubmit={event => {
        event.preventDefault()
        onFilter(draft.trim())
      }}
    >
      <div className="filter-line">
        <input
          ref={box}
          data-filter
          className="field mono"
          value={draft}
          spellCheck={false}
          autoComplete="off"
          aria-label="Filter"
          aria-invalid={error !== null}
          aria-describedby="filter-said"
          placeholder={example(fields)}
          onChange={event => setDraft(event.target.value)}
          onKeyDown={leave}
        />
        <button type="submit" className="button">
          Filter
        </button>
        {filter && (
          <button type="button" className="button" onClick={() => onFilter("")}>
            Show all
          </button>
        )}
        <span className="quiet" aria-live="polite">
          {total === null ? "" : `${count(total)} ${total === 1 ? "rollout" : "rollouts"}`}
        </span>
      </div>
      <Names
        draft={draft}
        fields={fields}
        onName={field => {
          setDraft(completed(draft, field))
          box.current?.focus()
        }}
      />
      <div id="filter-said">{error && <Wrong filter={filter} error={error} fields={fields} />}</div>
    </form>
  )
}

/** The names of parts and metrics, or the fields that have what is being typed; a click writes one into the filter. */
function Names({ draft, fields, onName }: { draft: string; fields: Field[]; onName: (field: Field) => void }) {
  const { fields: names, all } = offered(draft, fields)
  if (names.length === 0) return null
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be laid out in a line
    <div className="filter-names" role="group" aria-label="Fields for the filter">
      {names.map(field => (
        <button key={field.name} type="button" className="button small mono" onClick={() => onName(field)}>
          {line(field.text, 60)}
        </button>
      ))}
      {all > names.length && <span className="quiet">and {count(all - names.length)} more: type a part of a name</span>}
    </div>
  )
}

/** An expression that would pass here: two fields of the run with values of its own. */
function example(fields: Field[]): string {
  const env = fields.find(field => field.name === "env")?.example
  return `${env ? `env == ${JSON.stringify(env)} and ` : ""}reward < 0.2 and stop_reason != "done"`
}

/** What is wrong with the filter, where, and which fields there are. */
function Wrong({ filter, error, fields }: { filter: string; error: Refused; fields: Field[] }) {
  const names = error.fields.length ? error.fields : fields.map(field => field.text)
  return (
    <>
      <ErrorLine error={error.status === 400 ? error.message.replace(/; fields: .*$/, "") : error} />
      {error.at !== null && (
        <pre className="filter-at" aria-hidden="true">
          {line(filter, 200)}
          {"\n"}
          {" ".repeat(Math.min(error.at, 200))}^
        </pre>
      )}
      {error.status === 400 && <p className="quiet">Fields: {names.join(", ")}</p>}
    </>
  )
}
