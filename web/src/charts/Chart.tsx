import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "react"
import uPlot from "uplot"
import "uplot/dist/uPlot.min.css"
import type { Finding } from "../api/types"
import { count, figure } from "../format"
import { briefly, room } from "./axis"
import { align, dashes, type Inks, inks, type Line } from "./series"

/** The colours of now; new ones when the look changes. */
export function useInks(): Inks {
  const [now, setNow] = useState(inks)
  useEffect(() => {
    const changed = () => setNow(inks())
    const media = window.matchMedia("(prefers-color-scheme: dark)")
    window.addEventListener("studio-theme", changed)
    media.addEventListener("change", changed)
    return () => {
      window.removeEventListener("studio-theme", changed)
      media.removeEventListener("change", changed)
    }
  }, [])
  return now
}

interface ChartProps {
  title: string
  lines: Line[]
  smoothing: number
  ink: Inks
  /** The step that is open below, and what happens when one is clicked. */
  step: number | null
  onStep: (step: number) => void
  findings: Finding[]
  height?: number
}

/** Most steps with findings that are ruled from top to bottom. */
const MAX_RULES = 3

function marks(ink: Inks, props: { current: ChartProps }): uPlot.Plugin {
  const draw = (plot: uPlot) => {
    const { ctx, bbox } = plot
    const ratio = window.devicePixelRatio
    const rule = (step: number, colour: string, dash: number[]) => {
      const x = plot.valToPos(step, "x", true)
      ctx.strokeStyle = colour
      ctx.setLineDash(dash.map(length => length * ratio))
      ctx.beginPath()
      ctx.moveTo(x, bbox.top)
      ctx.lineTo(x, bbox.top + bbox.height)
      ctx.stroke()
      return x
    }
    ctx.save()
    ctx.lineWidth = ratio
    const steps = new Set(props.current.findings.map(finding => finding.step))
    for (const step of steps) {
      // Many rules would hide the curves: then the marks on the edge say where, and the panel above says what.
      const x = steps.size > MAX_RULES ? plot.valToPos(step, "x", true) : rule(step, ink.bad, [2, 3])
      ctx.fillStyle = ink.bad
      ctx.beginPath()
      ctx.moveTo(x - 4 * ratio, bbox.top)
      ctx.lineTo(x + 4 * ratio, bbox.top)
      ctx.lineTo(x, bbox.top + 6 * ratio)
      ctx.fill()
    }
    if (props.current.step !== null) rule(props.current.step, ink.accent, [])
    ctx.restore()
  }
  return { hooks: { draw } }
}

const axis = (ink: Inks, more: uPlot.Axis): uPlot.Axis => ({
  stroke: ink.quiet,
  font: "11px 'IBM Plex Sans Variable', sans-serif",
  grid: { stroke: ink.line, width: 1 },
  ticks: { show: false },
  gap: 6,
  ...more,
})

/** Lines over steps: hover reads them off, a click opens the step. */
export function Chart(props: ChartProps) {
  const { lines, smoothing, ink, title, height = 168 } = props
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const newest = useRef(props)
  newest.current = props
  const [hover, setHover] = useState<number | null>(null)
  const { steps, drawn } = useMemo(() => align(lines, smoothing, ink.series), [lines, smoothing, ink])
  const shape = JSON.stringify([drawn.map(line => [line.label, line.colour, line.dash]), smoothing > 0])
  // biome-ignore lint/correctness/useExhaustiveDependencies: the data comes by setData; another shape is another plot
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const options: uPlot.Options = {
      width: element.clientWidth,
      height,
      legend: { show: false },
      padding: [8, 12, 0, 0],
      cursor: {
        y: false,
        drag: { x: true, y: false, dist: 6, click: () => {} },
        points: { size: 7 },
        sync: { key: "steps" },
      },
      scales: { x: { time: false }, y: { range: (_, low, high) => room(low, high) } },
      axes: [
        axis(ink, { size: 26, space: 64, values: (_, ticks) => ticks.map(tick => (tick % 1 ? "" : count(tick))) }),
        axis(ink, { size: 54, space: 32, values: (_, ticks) => briefly(ticks) }),
      ],
      series: [{}, ...drawn.flatMap(line => strokes(line, smoothing > 0))],
      hooks: { setCursor: [now => setHover(now.cursor.idx ?? null)] },
      plugins: [marks(ink, newest)],
    }
    const made = new uPlot(options, [[], ...drawn.flatMap(() => (smoothing > 0 ? [[], []] : [[]]))], element)
    plot.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    let pressed = 0
    const click = (event: MouseEvent) => {
      const step = made.data[0][made.posToIdx(event.offsetX)]
      if (step !== undefined && Math.abs(event.clientX - pressed) < 6) newest.current.onStep(step)
    }
    made.over.addEventListener("mousedown", event => {
      pressed = event.clientX
    })
    made.over.addEventListener("click", click)
    return () => {
      observer.disconnect()
      made.destroy()
    }
  }, [shape, ink, height])
  // biome-ignore lint/correctness/useExhaustiveDependencies: a plot of another shape needs its data too
  useLayoutEffect(() => {
    const values = drawn.flatMap(line => (smoothing > 0 ? [line.raw, line.values] : [line.values]))
    plot.current?.setData([steps, ...values] as uPlot.AlignedData)
  }, [steps, drawn, shape, ink, height])
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is marked changed
  useEffect(() => void plot.current?.redraw(false), [props.step, props.findings])
  const at = hover ?? steps.length - 1
  return (
    <figure className="chart" aria-label={`${title} over steps`}>
      <figcaption>
        <span className="quiet">step {hover === null && steps.length === 0 ? "\u2013" : count(steps[at] ?? 0)}</span>
        {drawn.map(line => (
          <span key={line.label} className="legend">
            <svg width="20" height="3" aria-hidden="true">
              <path d="M0 1.5h20" stroke={line.colour} strokeWidth="3" strokeDasharray={dashes(line.dash).join(" ")} />
            </svg>
            {line.label} <b>{figure(line.raw[at])}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} className="plot" style={{ height }} />
    </figure>
  )
}

function strokes(line: { label: string; colour: string; dash: number }, smoothed: boolean): uPlot.Series[] {
  const dash = line.dash ? dashes(line.dash) : undefined
  const whole: uPlot.Series = {
    label: line.label,
    stroke: line.colour,
    width: 1.75,
    dash,
    spanGaps: true,
    points: { size: 4 },
  }
  if (!smoothed) return [whole]
  return [
    { ...whole, width: 1, alpha: 0.3, points: { show: false } },
    { ...whole, points: { show: false } },
  ]
}
