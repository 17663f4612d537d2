import { useEffect, useMemo, useRef, useState } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import type { StepGroup } from "../api/types"
import { count, figure } from "../format"
import { useKeys } from "../keys"
import { ErrorLine, Panel, Pill, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { type Column, Table } from "../parts/Table"
import { go, to } from "../router"
import { sorted } from "./stepOrder"

interface StepProps {
  run: string
  stage: string
  step: number
  onClose: () => void
  onStep: (step: number) => void
}

/** From the least to the greatest reward of a group, its mean as a dot, on the step's common scale. */
function Spread({ group, low, high }: { group: StepGroup; low: number; high: number }) {
  const at = (value: number) => (100 * (value - low)) / (high - low || 1)
  if (group.mean === null || group.low === null || group.high === null) return <span className="quiet">unscored</span>
  return (
    <span className="spread" aria-hidden="true">
      <i style={{ left: `${at(group.low)}%`, width: `${at(group.high) - at(group.low)}%` }} />
      <b style={{ left: `${at(group.mean)}%` }} />
    </span>
  )
}

/** The groups of one step: whose rewards differ, and how far. */
export function StepGroups({ run, stage, step, onClose, onStep }: StepProps) {
  const { data, error, slow } = useData(`step ${run} ${stage} ${step}`, signal => api.step(run, stage, step, signal))
  const [selected, setSelected] = useState(0)
  const panel = useRef<HTMLDivElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: another step begins at its top
  useEffect(() => {
    setSelected(0)
    panel.current?.scrollIntoView({ block: "nearest" })
  }, [step, stage])
  const [sort, setSort] = useState("group")
  const groups = useMemo(() => sorted(data?.groups ?? [], sort), [data, sort])
  const bounds = groups.flatMap(group => [group.low, group.high].filter(value => value !== null))
  const [low, high] = [Math.min(...bounds), Math.max(...bounds)]
  const here = groups[selected]
  const address = (group: StepGroup) => to(["run", run, "group", stage, step, group.group])
  const move = (by: number) => setSelected(old => Math.max(0, Math.min(groups.length - 1, old + by)))
  useKeys([
    { keys: ["j", "ArrowDown"], what: "Next group", run: () => move(1) },
    { keys: ["k", "ArrowUp"], what: "Group before", run: () => move(-1) },
    { keys: ["Enter"], what: "Open the group", run: () => here && go(address(here)) },
  ])
  const columns: Column<StepGroup>[] = [
    { key: "group", label: "Group", width: "80px", cell: group => count(group.group) },
    { key: "task", label: "Task", width: "minmax(120px, 2fr)", cell: group => line(group.task) },
    { key: "n", label: "Rollouts", width: "80px", align: "right", cell: group => count(group.n) },
    { key: "mean", label: "Mean", width: "80px", align: "right", cell: group => figure(group.mean) },
    { key: "low", label: "Lowest", width: "80px", align: "right", cell: group => figure(group.low) },
    { key: "high", label: "Highest", width: "80px", align: "right", cell: group => figure(group.high) },
    { key: "spread", label: "Spread", width: "minmax(96px, 1fr)", cell: group => <Spread {...{ group, low, high }} /> },
    {
      key: "has_signal",
      label: "Signal",
      width: "96px",
      title: "A group has a learning signal when its rewards differ",
      cell: group => (group.has_signal ? <Pill tone="accent">signal</Pill> : <Pill>no signal</Pill>),
    },
  ]
  const actions = (
    <>
      <button
        type="button"
        className="button small"
        onClick={() => onStep(Math.max(0, step - 1))}
        aria-label="Step before"
      >
        {"\u2190"}
      </button>
      <button type="button" className="button small" onClick={() => onStep(step + 1)} aria-label="Next step">
        {"\u2192"}
      </button>
      <button type="button" className="button small" onClick={onClose}>
        Close
      </button>
    </>
  )
  return (
    <div ref={panel} className="dock">
      <Panel title={`Step ${count(step)} of ${line(stage, 40)}`} actions={actions} className="step-groups">
        {error && <ErrorLine error={error} />}
        {!data && slow && <Skeleton />}
        {data && groups.length === 0 && <p className="quiet pad">No rollouts were stored in this step.</p>}
        {data && groups.length < data.total && (
          <p className="quiet pad">
            The first {count(groups.length)} of {count(data.total)} groups are listed, and sorted among themselves.
          </p>
        )}
        {groups.length > 0 && (
          <Table
            label={`Groups of step ${step}`}
            columns={columns.map(column => ({ ...column, sortable: true }))}
            sort={sort}
            onSort={next => {
              setSelected(0)
              setSort(next)
            }}
            total={groups.length}
            row={index => groups[index]}
            rowKey={group => group.group}
            open={address}
            selected={selected}
            onSelect={setSelected}
          />
        )}
      </Panel>
    </div>
  )
}
