/** A world's past: the state of its apps after any entry, and what differs between two of them. */

import type { Change, Entry, Key, Plain, States } from "../api/world"
import type { Json } from "../api/types"
import { own, setOwn } from "../own"

const isPlain = (value: Json | undefined): value is Plain =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The value with one place in it changed; what is not on the way there is shared. */
function put(value: Json, path: Key[], kind: Change["kind"], after: Json): Json {
  const [key, ...rest] = path
  if (key === undefined) return after
  if (Array.isArray(value)) {
    const next = [...value]
    const at = Number(key)
    if (rest.length === 0 && kind === "removed") next.splice(at, 1)
    else next[at] = rest.length === 0 ? after : put(value[at] ?? null, rest, kind, after)
    return next
  }
  const next: Plain = isPlain(value) ? { ...value } : {}
  if (rest.length === 0 && kind === "removed") delete next[key]
  else setOwn(next, key, rest.length === 0 ? after : put(own(next, key) ?? null, rest, kind, after))
  return next
}

/** States by moment, made from the first one as they are asked for. */
export class Past {
  private made: States[]

  constructor(
    initial: States,
    private entries: Entry[],
    readonly known: number,
  ) {
    this.made = [initial]
  }

  /** After entry `n`; -1 is the start. Beyond what is known, the last that is. */
  at(n: number): States {
    const wanted = Math.max(-1, Math.min(n, this.known)) + 1
    while (this.made.length <= wanted) {
      let states = this.made[this.made.length - 1] ?? {}
      for (const { app, path, kind, after } of this.entries[this.made.length - 1]?.changes ?? []) {
        states = setOwn({ ...states }, app, put(own(states, app) ?? {}, path, kind, after) as Plain)
      }
      this.made.push(states)
    }
    return this.made[wanted] ?? {}
  }
}

export interface Difference {
  app: string
  path: Key[]
  before: Json | undefined
  after: Json | undefined
}

const MOST = 500

function differ(
  before: Json | undefined,
  after: Json | undefined,
  at: { app: string; path: Key[] },
  out: Difference[],
) {
  if (before === after || out.length >= MOST) return
  if (isPlain(before) && isPlain(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      differ(own(before, key), own(after, key), { app: at.app, path: [...at.path, key] }, out)
    }
  } else if (Array.isArray(before) && Array.isArray(after) && before.length <= after.length) {
    for (const key of after.keys()) differ(before[key], after[key], { app: at.app, path: [...at.path, key] }, out)
  } else if (JSON.stringify(before) !== JSON.stringify(after)) {
    out.push({ ...at, before, after })
  }
}

/** What is different, at most so many places; what two states share is not looked into. */
export function differences(before: States, after: States): Difference[] {
  const out: Difference[] = []
  for (const app of Object.keys(after)) differ(own(before, app), after[app], { app, path: [] }, out)
  return out
}

/** For an app, the first two keys of every changed path: `inbox/ID`. By these rows are marked as fresh. */
export function freshRows(found: Difference[], app: string): Set<string> {
  return new Set(found.filter(one => one.app === app).map(({ path }) => path.slice(0, 2).join("/")))
}

/** How many places changed, by app. */
export function counts(found: Difference[]): Map<string, number> {
  const out = new Map<string, number>()
  for (const { app } of found) out.set(app, (out.get(app) ?? 0) + 1)
  return out
}
