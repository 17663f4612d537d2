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
  const news = useNews().runs[key]
  const loaded = useData(`run ${key}`, signal => api.run(key, signal), tick?.stage)
  const data = useMemo(() => {
    if (!loaded.data) return null
    const newer = news ? { ...loaded.data, ...news } : loaded.data
    return tick ? { ...newer, rollouts: Math.max(tick.rollouts, newer.rollouts) } : newer
  }, [loaded.data, news, tick])
  if (news === null) return { ...loaded, data, error: loaded.error }
  return { ...loaded, data }
}
