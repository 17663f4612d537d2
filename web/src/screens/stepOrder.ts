/** The groups of a step in the order of a column. */

import type { StepGroup } from "../api/types"

const KEYS = new Map<string, (group: StepGroup) => number | string | null>([
  ["group", group => group.group],
  ["task", group => group.task],
  ["n", group => group.n],
  ["mean", group => group.mean],
  ["low", group => group.low],
  ["high", group => group.high],
  ["spread", group => (group.low === null || group.high === null ? null : group.high - group.low)],
  ["has_signal", group => Number(group.has_signal)],
])

/** The groups by a column, falling with a minus before it; those without a value last. */
export function sorted(groups: StepGroup[], sort: string): StepGroup[] {
  const key = KEYS.get(sort.replace(/^-/, ""))
  if (!key) return groups
  const sign = sort.startsWith("-") ? -1 : 1
  return [...groups].sort((one, two) => {
    const [x, y] = [key(one), key(two)]
    if (x === y) return one.group - two.group
    if (x === null || y === null) return x === null ? 1 : -1
    return x < y ? -sign : sign
  })
}
