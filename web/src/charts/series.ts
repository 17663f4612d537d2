/** What a chart draws: lines over one axis of steps. */

import type { Metrics, Series } from "../api/types"
import { own } from "../own"
import { line } from "../parts/safe"
import { type PanelOf, short } from "./panels"

export interface Line {
  label: string
  series: Series
  /** Index into the palette, from 1. */
  colour: number
  /** Number of the pattern of dashes; 0 is solid. */
  dash: number
}

/** A panel's lines: by metric in colours; with other runs laid over, each run has a colour and each metric its dashes. */
export function linesOf(panel: PanelOf, all: { name: string; metrics: Metrics }[]): Line[] {
  const alone = all.length === 1
  return all.flatMap(({ name: run, metrics }, n) =>
    panel.names.flatMap((name, at) => {
      const series = own(metrics.series, name)
      if (!series) return []
      const label = alone ? short(name) : panel.names.length === 1 ? run : `${short(name)} · ${run}`
      return [{ label: line(label, 60), series, colour: (alone ? at : n) + 1, dash: alone ? 0 : at }]
    }),
  )
}

/** The lengths of strokes and gaps of a pattern; every number has its own. */
export const dashes = (pattern: number): number[] =>
  pattern === 0 ? [] : [2 * pattern + 2, 3, ...(pattern % 2 ? [] : [1.5, 3])]

export interface Drawn {
  label: string
  colour: string
  dash: number
  values: (number | null)[]
  raw: (number | null)[]
}

/** Exponential smoothing that a gap does not break, without the pull of the first value; 0 leaves a line as it is. */
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  if (weight === 0) return values
  let [sum, mass] = [0, 0]
  return values.map(value => {
    if (value === null) return null
    sum = weight * sum + (1 - weight) * value
    mass = weight * mass + (1 - weight)
    return sum / mass
  })
}

/** All lines on the union of their steps. */
export function align(lines: Line[], weight: number, colours: string[]): { steps: number[]; drawn: Drawn[] } {
  const steps = [...new Set(lines.flatMap(line => line.series.steps))].sort((a, b) => a - b)
  const drawn = lines.map(({ label, series, colour, dash }) => {
    const smoothed = smooth(series.values, weight)
    const at = new Map(series.steps.map((step, index) => [step, index]))
    const pick = (values: (number | null)[]) =>
      steps.map(step => {
        const index = at.get(step)
        return index === undefined ? null : (values[index] ?? null)
      })
    const hue = colours[(colour - 1) % colours.length] ?? "gray"
    return { label, colour: hue, dash, values: pick(smoothed), raw: pick(series.values) }
  })
  return { steps, drawn }
}

/** A colour of tokens.css as a browser's canvas wants it. */
export function resolve(name: string): string {
  const probe = document.createElement("span")
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const colour = getComputedStyle(probe).color
  probe.remove()
  return colour
}

export interface Inks {
  series: string[]
  ink: string
  quiet: string
  line: string
  card: string
  bad: string
  accent: string
}

export const inks = (): Inks => ({
  series: [1, 2, 3, 4, 5, 6, 7, 8].map(n => resolve(`--series-${n}`)),
  ink: resolve("--ink"),
  quiet: resolve("--ink-3"),
  line: resolve("--line"),
  card: resolve("--card"),
  bad: resolve("--bad"),
  accent: resolve("--accent"),
})
