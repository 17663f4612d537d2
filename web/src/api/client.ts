/** The one way to the data: a live server, or the files of a static export. */

import type {
  Comparison,
  ComparedSamples,
  Control,
  GroupOpened,
  Metrics,
  Opened,
  Page,
  Result,
  Run,
  RunEvent,
  RunInfo,
  StepGroup,
  Tokens,
} from "./types"

/** Where the page was loaded from: beside a server, or from a folder. */
export const EXPORTED = document.querySelector("base")?.dataset.studio === "static"

/** What the server (or the export) said instead of an answer: one line, and what may help. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** Column of a filter where it went wrong, from 0. */
    readonly at: number | null = null,
    readonly fields: string[] = [],
  ) {
    super(message)
  }
}

export interface Ask {
  filter: string
  sort: string
  offset: number
  limit: number
}

export interface Api {
  runs(signal?: AbortSignal): Promise<{ runs: RunInfo[] }>
  run(key: string, signal?: AbortSignal): Promise<Run>
  metrics(key: string, stage: string, signal?: AbortSignal): Promise<Metrics>
  events(key: string, signal?: AbortSignal): Promise<{ events: RunEvent[] }>
  rollouts(key: string, ask: Ask, signal?: AbortSignal): Promise<Page>
  step(key: string, stage: string, step: number, signal?: AbortSignal): Promise<{ total: number; groups: StepGroup[] }>
  group(key: string, stage: string, step: number, group: number, signal?: AbortSignal): Promise<GroupOpened>
  rollout(key: string, id: number, signal?: AbortSignal): Promise<Opened>
  text(key: string, id: number, at: { seat: number; turn: number; message: number }): Promise<{ text: string }>
  tokens(key: string, id: number, seat: number, turn: number, signal?: AbortSignal): Promise<Tokens>
  /** The figures of an evaluation, by a key of its tasks' info where one is named. */
  result(key: string, by: string, signal?: AbortSignal): Promise<Result>
  compare(a: string, b: string, signal?: AbortSignal): Promise<Comparison>
  samples(a: string, b: string, task: string, signal?: AbortSignal): Promise<ComparedSamples>
  control(key: string, what: Control): Promise<RunInfo>
  /** Where the whole record lies as a file. */
  raw(key: string, id: number): string
}

declare global {
  interface Window {
    /** What `early.js` asked for. */
    early?: { path: string; answer: Promise<Response> }
  }
}

/** The answer that was asked for while the page was loaded, once. */
function taken(path: string): Promise<Response> | null {
  const early = window.early
  if (early?.path !== path) return null
  window.early = undefined
  return early.answer
}

/** Ask the server; a Refused says in one line why there is no answer. */
export async function ask<T>(path: string, options: RequestInit = {}): Promise<T> {
  let response: Response
  try {
    response = await (taken(path) ?? fetch(path, { credentials: "same-origin", ...options }))
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error
    throw new Refused("The studio's server does not answer: is `wander studio` still running?", 0)
  }
  const body = await response.json().catch(() => null)
  if (!response.ok) {
    const said = body && typeof body.error === "string" ? body.error : `the server answered ${response.status}`
    throw new Refused(said, response.status, body?.at ?? null, body?.fields ?? [])
  }
  return body as T
}

export const send = <T>(path: string, body: unknown, method = "POST"): Promise<T> =>
  ask<T>(path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) })

/** `path("/api/runs/{}/x", key)`: a path whose parts are quoted. */
export const path = (form: string, ...parts: (string | number)[]): string => {
  let at = 0
  return form.replaceAll("{}", () => encodeURIComponent(String(parts[at++])))
}

const LIVE: Api = {
  runs: signal => ask("/api/runs", { signal }),
  run: (key, signal) => ask(path("/api/runs/{}", key), { signal }),
  metrics: (key, stage, signal) => ask(path("/api/runs/{}/metrics?stage={}", key, stage), { signal }),
  events: (key, signal) => ask(path("/api/runs/{}/events?after=0", key), { signal }),
  rollouts: (key, { filter, sort, offset, limit }, signal) =>
    ask(path("/api/runs/{}/rollouts?filter={}&sort={}&offset={}&limit={}", key, filter, sort, offset, limit), {
      signal,
    }),
  step: (key, stage, step, signal) => ask(path("/api/runs/{}/steps/{}/{}", key, stage, step), { signal }),
  group: (key, stage, step, group, signal) =>
    ask(path("/api/runs/{}/groups/{}/{}/{}", key, stage, step, group), { signal }),
  rollout: (key, id, signal) => ask(path("/api/runs/{}/rollouts/{}", key, id), { signal }),
  text: (key, id, { seat, turn, message }) =>
    ask(path("/api/runs/{}/rollouts/{}/text?seat={}&turn={}&message={}", key, id, seat, turn, message)),
  tokens: (key, id, seat, turn, signal) =>
    ask(path("/api/runs/{}/rollouts/{}/tokens?seat={}&turn={}", key, id, seat, turn), { signal }),
  compare: (a, b, signal) => ask(path("/api/compare?a={}&b={}", a, b), { signal }),
  result: (key, by, signal) => ask(path("/api/runs/{}/result?by={}", key, by), { signal }),
  samples: (a, b, task, signal) => ask(path("/api/compare/task?a={}&b={}&task={}", a, b, task), { signal }),
  control: (key, what) => send(path("/api/runs/{}/control", key), { do: what }),
  raw: (key, id) => path("/api/runs/{}/rollouts/{}/raw", key, id),
}

export let api: Api = LIVE

/** Read the files of an export from now on. */
export async function readFiles(): Promise<void> {
  const { FILES } = await import("./files")
  api = FILES
}
