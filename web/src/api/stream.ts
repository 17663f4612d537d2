/** One stream of news per tab: what changed in the list of runs, and how the open run goes on. */

import { useEffect, useSyncExternalStore } from "react"
import { EXPORTED } from "./client"
import type { RunInfo, Tick } from "./types"

type Link = "off" | "waiting" | "live" | "lost"

interface News {
  link: Link
  /** Runs that changed since the page was loaded, by key; null for one that is gone. */
  runs: Record<string, RunInfo | null>
  tick: Tick | null
}

let news: News = { link: EXPORTED ? "off" : "waiting", runs: {}, tick: null }
let source: EventSource | null = null
let watched: string | null = null
const listeners = new Set<() => void>()

function tell(change: Partial<News>): void {
  news = { ...news, ...change }
  for (const listener of listeners) listener()
}

function open(key: string | null): void {
  source?.close()
  watched = key
  const stream = new EventSource(key === null ? "/api/stream" : `/api/stream?run=${encodeURIComponent(key)}`)
  source = stream
  stream.onopen = () => tell({ link: "live" })
  stream.onerror = () => tell({ link: "lost" })
  stream.addEventListener("runs", event => {
    const { runs } = JSON.parse(event.data) as { runs: RunInfo[] }
    tell({ runs: { ...news.runs, ...Object.fromEntries(runs.map(run => [run.key, run])) } })
  })
  stream.addEventListener("run", event => tell({ tick: JSON.parse(event.data) as Tick }))
  stream.addEventListener("gone", event => {
    const { key: gone } = JSON.parse(event.data) as { key: string }
    tell({ runs: { ...news.runs, [gone]: null } })
  })
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

/** The newest word about a run, or null while there is none. */
export function useTick(key: string): Tick | null {
  const { tick } = useNews()
  return tick?.key === key ? tick : null
}
