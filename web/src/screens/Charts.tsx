import { useMemo } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import { useTick } from "../api/stream"
import type { Finding, Run, RunInfo } from "../api/types"
import { Chart, useInks } from "../charts/Chart"
import { panels } from "../charts/panels"
import { keep } from "../charts/picture"
import { align, type Inks, type Line, linesOf } from "../charts/series"
import { useKeys } from "../keys"
import { Choose, ErrorLine, Panel, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { useQuery } from "../router"
import { titles } from "./titles"

interface ChartsProps {
  run: Run
  stage: string
  step: number | null
  findings: Finding[]
  onStep: (step: number) => void
}

/** The curves of a stage, other runs laid over them where the address says so. */
export function Charts({ run, stage, step, findings, onStep }: ChartsProps) {
  const [query, change] = useQuery()
  const ink = useInks()
  const tick = useTick(run.key)
  const mine = useData(`metrics ${run.key} ${stage}`, signal => api.metrics(run.key, stage, signal), tick?.step)
  const others = (query.get("with") ?? "").split(",").filter(key => key && key !== run.key)
  const over = useData(others.length ? `over ${stage} ${others.join()}` : null, async signal => {
    const found = await Promise.all(others.map(key => api.metrics(key, stage, signal)))
    return found.map((metrics, at) => ({ name: others[at] ?? "", metrics }))
  })
  const smoothing = Math.min(0.99, Math.max(0, Number(query.get("smooth") ?? 0) || 0))
  const shown = useMemo(() => {
    if (!mine.data) return []
    const all = [{ name: run.name, metrics: mine.data }, ...(over.data ?? [])]
    return panels(mine.data).map(panel => ({ panel, lines: linesOf(panel, all) }))
  }, [mine.data, over.data, run.name])
  const stages = [...new Set([...(mine.data?.stages ?? []), ...run.stages.map(({ name }) => name)])]
  const turn = (by: number) => {
    const next = stages[(stages.indexOf(stage) + by + stages.length) % stages.length]
    if (next) change({ stage: next, step: null })
  }
  const last = shown[0]?.lines[0]?.series.steps.at(-1) ?? 0
  useKeys([
    { keys: ["ArrowLeft"], what: "Step before", run: () => onStep(Math.max(0, (step ?? last + 1) - 1)) },
    { keys: ["ArrowRight"], what: "Next step", run: () => onStep(Math.min(last, (step ?? -1) + 1)) },
    { keys: ["["], what: "Stage before", run: () => turn(-1) },
    { keys: ["]"], what: "Next stage", run: () => turn(1) },
    { keys: ["s"], what: "Smooth the curves, or not", run: () => change({ smooth: smoothing ? null : 0.8 }) },
    { keys: ["Escape"], what: "Close the step", run: () => change({ step: null }) },
  ])
  if (mine.error && !mine.data) return <ErrorLine error={mine.error} />
  if (!mine.data) return mine.slow ? <Skeleton lines={8} /> : null
  if (shown.length === 0 && stages.length < 2) return null
  return (
    <>
      <div className="toolbar">
        {stages.length > 1 && (
          <Choose
            label="Stage"
            value={stage}
            choices={stages.map(name => ({ value: name, label: line(name, 40) }))}
            onChoose={name => change({ stage: name, step: null })}
          />
        )}
        <label className="smoothing">
          Smoothing
          <input
            type="range"
            min="0"
            max="0.98"
            step="0.02"
            value={smoothing}
            onChange={event => change({ smooth: Number(event.target.value) || null })}
          />
          <output>{smoothing.toFixed(2)}</output>
        </label>
        <Overlay run={run} others={others} onChange={keys => change({ with: keys.join(",") })} />
      </div>
      {over.error && <ErrorLine error={over.error} />}
      {shown.length === 0 && <p className="quiet">Nothing was measured in this stage.</p>}
      <div className="charts">
        {shown.map(({ panel, lines }) => (
          <Panel
            key={panel.title}
            title={
              <span title={panel.about}>
                {line(panel.title, 80)}
                {panel.unit && <small className="unit"> {panel.unit}</small>}
              </span>
            }
            actions={<Export title={panel.title} {...{ lines, smoothing, ink }} />}
          >
            <Chart title={panel.title} {...{ lines, smoothing, ink, step, findings, onStep }} />
          </Panel>
        ))}
      </div>
    </>
  )
}

function Export({ title, lines, smoothing, ink }: { title: string; lines: Line[]; smoothing: number; ink: Inks }) {
  const save = (form: "svg" | "png") => void keep({ title, ...align(lines, smoothing, ink.series) }, ink, form)
  return (
    <>
      <button type="button" className="text-button" onClick={() => save("png")} aria-label={`${title} as PNG`}>
        PNG
      </button>
      <button type="button" className="text-button" onClick={() => save("svg")} aria-label={`${title} as SVG`}>
        SVG
      </button>
    </>
  )
}

function Overlay({ run, others, onChange }: { run: RunInfo; others: string[]; onChange: (keys: string[]) => void }) {
  const runs = useData("runs", signal => api.runs(signal))
  const free = (runs.data?.runs ?? []).filter(
    one => one.kind === "training" && !one.problem && one.key !== run.key && !others.includes(one.key),
  )
  const names = titles(runs.data?.runs ?? [])
  if (free.length === 0 && others.length === 0) return null
  return (
    <span className="overlay">
      {others.map(key => (
        <button
          key={key}
          type="button"
          className="pill"
          onClick={() => onChange(others.filter(one => one !== key))}
          aria-label={`Take ${key} away`}
        >
          {line(key, 40)} {"\u00d7"}
        </button>
      ))}
      {free.length > 0 && (
        <select
          className="field"
          value=""
          aria-label="Overlay another run"
          onChange={event => onChange([...others, event.target.value])}
        >
          <option value="">Overlay{"\u2026"}</option>
          {free.map(one => (
            <option key={one.key} value={one.key}>
              {line(names.get(one.key) ?? one.name, 60)}
            </option>
          ))}
        </select>
      )}
    </span>
  )
}
