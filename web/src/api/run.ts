import { useMemo } from "react"
import { api } from "./client"
import { useData } from "./data"
import { useNews, useTick } from "./stream"
import type { Run } from "./types"

/** The run with what the stream said of it since. */
export function useRun(key: string): {
  data: Run | null
  error: ReturnType<typeof useData>["error"]
  slow: boolean
} {
  const tick = useTick(key)
  const news = useNews().runs.get(key)
  // Asked again when the run begins, when it ends, and when a stage does.
  const state = `${tick?.stage} ${news !== undefined} ${news?.finished} ${news?.running}`
  const loaded = useData(`run ${key}`, signal => api.run(key, signal), state)
  const data = useMemo(() => {
    if (!loaded.data) return null
    const newer = news ? { ...loaded.data, ...news } : loaded.data
    return tick ? { ...newer, rollouts: Math.max(tick.rollouts, newer.rollouts) } : newer
  }, [loaded.data, news, tick])
  return { ...loaded, data }
}
