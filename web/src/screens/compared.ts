/** The rows of a comparison: which are shown, and in which order. */

import type { ComparedTask } from "../api/types"

export const SHOWN = new Map<string, { label: string; holds: (one: ComparedTask) => boolean }>([
  ["all", { label: "All", holds: () => true }],
  ["better", { label: "Better in the second", holds: one => one.b > one.a }],
  ["worse", { label: "Better in the first", holds: one => one.b < one.a }],
  ["alike", { label: "Alike", holds: one => one.a === one.b }],
  ["flipped", { label: "Passed in one only", holds: one => one.flip !== null }],
])

const KEYS = new Map<string, (one: ComparedTask) => number | string>([
  ["task", one => one.task],
  ["a", one => one.a],
  ["b", one => one.b],
  ["size", one => Math.abs(one.b - one.a)],
  ["flip", one => one.flip ?? ""],
])

/** How many tasks are of a kind. */
export const tally = (tasks: ComparedTask[], kind: string): number =>
  tasks.filter(SHOWN.get(kind)?.holds ?? (() => true)).length

/** The rows of a kind by a column, falling with a minus before it; ties by task. */
export function ordered(tasks: ComparedTask[], kind: string, sort: string): ComparedTask[] {
  const holds = SHOWN.get(kind)?.holds ?? (() => true)
  const key = KEYS.get(sort.replace(/^-/, ""))
  const rows = tasks.filter(holds)
  if (!key) return rows
  const sign = sort.startsWith("-") ? -1 : 1
  return rows.sort((one, two) => {
    const [x, y] = [key(one), key(two)]
    if (x !== y) return x < y ? -sign : sign
    return one.task < two.task ? -1 : 1
  })
}
