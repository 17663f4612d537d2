/** One stream of news per tab: what changed in the list of runs, and how the open run goes on. */

import { useEffect, useSyncExternalStore } from "react"
import { EXPORTED } from "./client"
import type { RunInfo, Tick } from "./types"

type Link = "off" | "waiting" | "live" | "lost" | "locked"

interface News {
  link: Link
  /** Runs that changed since the page was loaded, by key; null for one that is gone. */
  runs: ReadonlyMap<string, RunInfo | null>
  tick: Tick | null
  /** Grows whenever the server is back: all data is asked for again. */
  epoch: number
}

/** Milliseconds between two attempts to reach a server that closed the stream. */
const RETRY_MS = 2000

let news: News = { link: EXPORTED ? "off" : "waiting", runs: new Map(), tick: null, epoch: 0 }
let source: EventSource | null = null
let watched: string | null = null
let again: ReturnType<typeof setTimeout> | undefined
const listeners = new Set<() => void>()

function tell(change: Partial<News>): void {
  news = { ...news, ...change }
  for (const listener of listeners) listener()
}

const changed = (entries: [string, RunInfo | null][]): ReadonlyMap<string, RunInfo | null> =>
  new Map([...news.runs, ...entries])

function open(key: string | null): void {
  source?.close()
  clearTimeout(again)
  watched = key
  const stream = new EventSource(key === null ? "/api/stream" : `/api/stream?run=${encodeURIComponent(key)}`)
  source = stream
  stream.onopen = () => {
    const back = news.link === "lost" || news.link === "locked"
    tell({ link: "live", epoch: back ? news.epoch + 1 : news.epoch })
  }
  stream.onerror = () => {
    if (source !== stream) return
    if (news.link !== "locked") tell({ link: "lost" })
    if (stream.readyState === EventSource.CLOSED) void retry(stream) // the browser gives up after any answer but a stream
  }
  stream.addEventListener("runs", event => {
    const { runs } = JSON.parse(event.data) as { runs: RunInfo[] }
    tell({ runs: changed(runs.map(run => [run.key, run])) })
  })
  stream.addEventListener("run", event => tell({ tick: JSON.parse(event.data) as Tick }))
  stream.addEventListener("gone", event => {
    const { key: gone } = JSON.parse(event.data) as { key: string }
    tell({ runs: changed([[gone, null]]) })
  })
}

/** Ask why the stream was refused, and open it again after a while. */
async function retry(refused: EventSource): Promise<void> {
  const answer = await fetch("/api/runs", { credentials: "same-origin" }).catch(() => null)
  if (source !== refused) return
  tell({ link: answer?.status === 401 ? "locked" : "lost" })
  again = setTimeout(() => open(watched), RETRY_MS)
}

/** Follow the list of runs, and one of them more closely. Called once, by the shell. */
export function useStream(key: string | null): void {
  useEffect(() => {
    if (!EXPORTED && (source === null || watched !== key)) open(key)
  }, [key])
}

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export function useNews(): News {
  return useSyncExternalStore(subscribe, () => news)
}

/** Grows whenever the server is back after it was away. */
export function useEpoch(): number {
  return useSyncExternalStore(subscribe, () => news.epoch)
}

/** The newest word about a run, or null while there is none. */
export function useTick(key: string): Tick | null {
  const { tick } = useNews()
  return tick?.key === key ? tick : null
}
