/** The data of a static export: files under data/, filtered and sorted here. */

import { type Api, path, Refused } from "./client"
import { type Cell, parse } from "./filter"
import { mainSeat } from "./seat"
import type { GroupOpened, Metrics, Opened, Result, Row, Run, StepGroup } from "./types"

async function file<T>(form: string, ...parts: (string | number)[]): Promise<T> {
  const response = await fetch(`data/${path(form, ...parts)}`).catch(() => null)
  if (!response?.ok) throw new Refused("This is not part of the export: look at it in `wander studio`.", 404)
  return (await response.json()) as T
}

interface Columns {
  names: string[]
  columns: Cell[][]
}

interface Rows {
  fields: Run["fields"]
  by: Map<string, Cell[]>
  total: number
}

const rowsOf = new Map<string, Promise<Rows>>()

async function load(key: string): Promise<Rows> {
  const [{ names, columns }, run] = await Promise.all([
    file<Columns>("{}/rows.json", key),
    file<Run>("{}/run.json", key),
  ])
  const by = new Map(names.map((name, at) => [name, columns[at] ?? []]))
  return { fields: run.fields, by, total: columns[0]?.length ?? 0 }
}

function rows(key: string): Promise<Rows> {
  const known = rowsOf.get(key) ?? load(key)
  rowsOf.set(key, known)
  return known
}

const rowAt = ({ by }: Rows, at: number): Row =>
  Object.fromEntries([...by].map(([name, column]) => [name, column[at] ?? null])) as unknown as Row

/** Indexes in order: missing values last, ties by id. */
function ordered(indexes: number[], column: Cell[], falling: boolean): number[] {
  return indexes.sort((a, b) => {
    const [x, y] = [column[a] ?? null, column[b] ?? null]
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1
    if (x === y) return a - b
    return x < y === falling ? 1 : -1
  })
}

const answers = new Map<string, number[]>()

async function matching(key: string, filter: string, sort: string): Promise<[Rows, number[]]> {
  const all = await rows(key)
  const name = JSON.stringify([key, filter, sort])
  const known = answers.get(name)
  if (known) return [all, known]
  const test = parse(filter, all.fields, all.by)
  const found: number[] = []
  for (let at = 0; at < all.total; at++) if (test(at)) found.push(at)
  const column = all.by.get(sort.replace(/^-/, ""))
  const out = column && sort !== "id" ? ordered(found, column, sort.startsWith("-")) : found
  answers.clear()
  answers.set(name, out)
  return [all, out]
}

function stepGroups(all: Rows, stage: string, step: number): StepGroup[] {
  const groups = new Map<number, Row[]>()
  for (let at = 0; at < all.total; at++) {
    if (all.by.get("stage")?.[at] !== stage || all.by.get("step")?.[at] !== step) continue
    const row = rowAt(all, at)
    groups.set(row.group, [...(groups.get(row.group) ?? []), row])
  }
  return [...groups].map(([group, members]) => {
    const rewards = members.flatMap(row => (row.reward === null ? [] : [row.reward]))
    const mean = rewards.length ? rewards.reduce((sum, one) => sum + one, 0) / rewards.length : null
    const [low, high] = rewards.length ? [Math.min(...rewards), Math.max(...rewards)] : [null, null]
    const task = members[0]?.task ?? ""
    return {
      group,
      task,
      n: members.length,
      mean,
      low,
      high,
      has_signal: low !== high,
      ids: members.map(row => row.id),
    }
  })
}

/** Turn and character where two rollouts' actions part; null where one goes on as the other. */
function parting(first: Opened, other: Opened): { turn: number; character: number } | null {
  const [mine, theirs] = [first, other].map(one => mainSeat(one)?.turns ?? []) as [Turns, Turns]
  for (let turn = 0; turn < Math.max(mine.length, theirs.length); turn++) {
    const [a, b] = [mine[turn]?.action.content ?? "", theirs[turn]?.action.content ?? ""]
    const calls = [mine, theirs].map(turns => JSON.stringify(turns[turn]?.action.tool_calls ?? []))
    if (a === b && calls[0] === calls[1] && mine[turn] && theirs[turn]) continue
    let character = 0
    while (character < a.length && a[character] === b[character]) character++
    return { turn, character }
  }
  return null
}

type Turns = Opened["trajectories"][number]["turns"]

async function group(key: string, stage: string, step: number, at: number): Promise<GroupOpened> {
  const found = stepGroups(await rows(key), stage, step).find(one => one.group === at)
  const opened = await Promise.all((found?.ids ?? []).map(id => file<Opened>("{}/rollouts/{}.json", key, id)))
  const [first] = opened
  if (!first) throw new Refused(`There is no group ${at} in step ${step} of ${stage}.`, 404)
  return {
    task: first.task,
    rollouts: opened,
    total: opened.length,
    diverge: opened.map(one => (one === first ? null : parting(first, one))),
  }
}

const never = (what: string): Promise<never> =>
  Promise.reject(new Refused(`${what} needs the running studio: \`wander studio\`.`, 0))

export const FILES: Api = {
  runs: () => file("runs.json"),
  run: key => file("{}/run.json", key),
  async metrics(key, stage) {
    const { stages } = await file<Run>("{}/run.json", key)
    const none = { names: [], series: {}, stages: stages.map(({ name }) => name) }
    return file<Metrics>("{}/metrics.{}.json", key, stage).catch(() => none) // a stage in which nothing was measured has no file
  },
  events: key => file("{}/events.json", key),
  async rollouts(key, { filter, sort, offset, limit }) {
    const [all, found] = await matching(key, filter, sort)
    const some = found.slice(offset, offset + limit).map(at => rowAt(all, at))
    return { total: found.length, offset, rows: some }
  },
  async step(key, stage, step) {
    const groups = stepGroups(await rows(key), stage, step)
    return { total: groups.length, groups }
  },
  group,
  rollout: (key, id) => file("{}/rollouts/{}.json", key, id),
  text: () => never("The rest of this text"),
  tokens: (key, id, seat, turn) => file("{}/rollouts/{}.tokens.{}.{}.json", key, id, seat, turn),
  async result(key, by) {
    const found = await file<Result | { error: string }>("{}/result.json", key)
    if ("error" in found) throw new Refused(found.error, 400)
    const stored = [found.report, ...Object.values(found.report.by_code ?? {})].find(part => part.group_by)?.group_by
    if (by && by !== stored) return never("Another breakdown")
    return { ...found, keys: stored ? [stored] : [] }
  },
  compare: () => never("A comparison"),
  samples: () => never("A comparison"),
  control: () => never("Control"),
  raw: (key, id) => `data/${path("{}/rollouts/{}.json", key, id)}`,
}
