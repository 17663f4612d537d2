/** The world of a rollout, and games: what the server says of them. */

import { ask, EXPORTED, path, Refused, send } from "./client"
import type { Json, Message, Score } from "./types"

export type Plain = { [key: string]: Json }
/** The state of every app, by name. */
export type States = { [app: string]: Plain }
export type Key = string | number

export interface Change {
  app: string
  path: Key[]
  kind: "added" | "removed" | "changed"
  after: Json
}

export interface Entry {
  /** Its line in the log; null for what never happened. */
  n: number | null
  time: number | null
  /** When what takes time was over. */
  until?: number
  kind: "event" | "call" | "think" | "time" | "wait" | "notification" | "match" | "turn" | "condition" | "stop"
  app: string
  action: string
  by: string
  args: Plain
  result: Json
  error: string | null
  status: "done" | "failed" | "pending"
  parents: string[]
  id: string | null
  writes?: boolean
  decision?: number | null
  /** The oracle's act that this is. */
  matched?: string
  /** A write that nobody asked for. */
  extra?: boolean
  changes?: Change[]
}

export interface Expected {
  id: string
  app: string
  action: string
  args: Plain
  parents: string[]
  due: number | null
  turn: number
  matched: number | null
  why: string | null
}

export interface Verdict {
  success: boolean
  decision: "accept" | "reject" | "undecided"
  share: number
  lines: string[]
  reasons: { fault: string; event: string; n: number | null; text: string }[]
  marks: Record<string, boolean>
  questions: { event: string; n: number; about: string[] }[]
  answers: { same: boolean | null; text: string; judge: string }[]
}

export interface World {
  start: number
  end: number
  /** The last entry after which the apps can be shown. */
  known: number
  entries: Entry[]
  oracle: Expected[]
  verdict: Verdict | null
  apps: string[]
  /** The class of each app. */
  kinds: Record<string, string>
  /** The entries before which the agent decided something. */
  decisions: number[]
  /** What cannot be shown, in one line. */
  why: string
  initial?: Moment
}

export interface Moment {
  time: number
  apps: States
}

export interface Tool {
  name: string
  description: string
  parameters: Plain
}

export interface Session {
  id: string
  env: string
  task: { id: string }
  seed: number
  seat: string
  labels: Record<string, string>
  /** Whose first play of a grid game this is; empty for any other game. */
  person: string
  since: { run: string; rollout: number; n: number } | null
  messages: Message[]
  tools: Tool[]
  waiting: boolean
  over: boolean
  world: boolean
  score: Score | null
  scores: Record<string, number>
  /** What the environment left, once the game is over; empty for a world. */
  state: Plain
  stop: string | null
  error: string | null
  stored: { key: string; id: number } | null
}

export interface Playable {
  name: string
  about?: string
  settings: { name: string; default: Json }[]
  seats: string[]
  world: boolean
  players: string[]
  opponent: "none" | "possible" | "needed"
  problem?: string
}

export interface Offer {
  environments: Playable[]
  checkpoints: { name: string; path: string }[]
  sessions: { id: string; env: string; task: string; over: boolean }[]
  /** What a person agrees to before a first play of a grid game is recorded. */
  consent: string
}

export interface Tasks {
  tasks: { index: number; id: string; begins: string }[]
  more: boolean
}

/** A world with the state that it began in: changes lead from there to every other moment. */
export async function world(run: string, id: number, signal?: AbortSignal): Promise<World> {
  if (EXPORTED) {
    const response = await fetch(path("data/{}/rollouts/{}.world.json", run, id), { signal }).catch(() => null)
    if (!response?.ok) throw new Refused("This world is not part of the export: look at it in `wander studio`.", 404)
    return (await response.json()) as World
  }
  const found = await ask<World>(path("/api/runs/{}/rollouts/{}/world", run, id), { signal })
  if (found.known < -1 || found.apps.length === 0) return found
  return { ...found, initial: await ask<Moment>(path("/api/runs/{}/rollouts/{}/world/at?n=-1", run, id), { signal }) }
}

export const branch = (run: string, id: number, n: number, policy: string): Promise<{ session: Session }> =>
  send(path("/api/runs/{}/rollouts/{}/world/branch", run, id), { n, policy })

export const offer = (signal?: AbortSignal): Promise<Offer> => ask("/api/play", { signal })

export const tasks = (env: string, split: string, offset: number, signal?: AbortSignal): Promise<Tasks> =>
  ask(path("/api/play/tasks?env={}&split={}&offset={}", env, split, offset), { signal })

export const begin = (game: Plain): Promise<Session> => send("/api/play", game)

export const session = (id: string, signal?: AbortSignal): Promise<Session> => ask(path("/api/play/{}", id), { signal })

export const act = (id: string, what: Plain): Promise<Session> => send(path("/api/play/{}/act", id), what)

export const drop = (id: string): Promise<unknown> => ask(path("/api/play/{}", id), { method: "DELETE" })

export const appsOf = (id: string, signal?: AbortSignal): Promise<Moment & { kinds: Record<string, string> }> =>
  ask(path("/api/play/{}/apps", id), { signal })
