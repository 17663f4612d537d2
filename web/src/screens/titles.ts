/** What runs are called in lists: by name, those of one name by their folders, and by key where that is not enough. */

import type { RunInfo } from "../api/types"

type Named = Pick<RunInfo, "key" | "name" | "path">

const FORMS: ((run: Named) => string)[] = [
  run => run.name,
  run => run.path.split("/").slice(-2).join("/"),
  run => run.key,
]

/** The title of every run, by key; no two runs have the same. */
export function titles(runs: Named[]): Map<string, string> {
  const found = new Map<string, string>()
  let same = runs
  for (const form of FORMS) {
    const counts = new Map<string, number>()
    for (const run of same) counts.set(form(run), (counts.get(form(run)) ?? 0) + 1)
    for (const run of same) found.set(run.key, form(run))
    same = same.filter(run => (counts.get(form(run)) ?? 0) > 1)
  }
  return found
}
