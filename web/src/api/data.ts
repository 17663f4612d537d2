/** Data for a screen: what was there before stays in sight while newer is fetched. */

import { useEffect, useRef, useState } from "react"
import { Refused } from "./client"
import { useEpoch } from "./stream"

export interface Loaded<T> {
  data: T | null
  error: Refused | null
  /** True from 200 ms on while there is nothing to show: time for a skeleton. */
  slow: boolean
}

const KEPT = 60
const kept = new Map<string, unknown>()

function keep(key: string, value: unknown): void {
  kept.delete(key)
  kept.set(key, value)
  const oldest = kept.keys().next().value
  if (kept.size > KEPT && oldest !== undefined) kept.delete(oldest)
}

const refusal = (error: unknown): Refused =>
  error instanceof Refused ? error : new Refused(error instanceof Error ? error.message : String(error), 0)

/**
 * Load by key; the same key shows at once what it showed last, and asks again. `news` asks again without
 * another key. A null key loads nothing.
 */
export function useData<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
  news: unknown = 0,
): Loaded<T> {
  const [state, setState] = useState<{ key: string | null; data: T | null; error: Refused | null; slow: boolean }>({
    key,
    data: key === null ? null : ((kept.get(key) as T) ?? null),
    error: null,
    slow: false,
  })
  const epoch = useEpoch()
  const loader = useRef(load)
  loader.current = load
  // biome-ignore lint/correctness/useExhaustiveDependencies: `news` and a server that is back ask again
  useEffect(() => {
    if (key === null) return
    const abort = new AbortController()
    const known = (kept.get(key) as T) ?? null
    setState(old => (old.key === key ? old : { key, data: known, error: null, slow: false }))
    const slow = setTimeout(() => setState(old => (old.data === null ? { ...old, slow: true } : old)), 200)
    loader
      .current(abort.signal)
      .then(
        data => {
          keep(key, data)
          if (!abort.signal.aborted) setState({ key, data, error: null, slow: false })
        },
        error => {
          if (!abort.signal.aborted) setState(old => ({ ...old, key, error: refusal(error), slow: false }))
        },
      )
      .finally(() => clearTimeout(slow))
    return () => {
      clearTimeout(slow)
      abort.abort()
    }
  }, [key, news, epoch])
  if (state.key === key) return state
  return { data: key === null ? null : ((kept.get(key) as T) ?? null), error: null, slow: false }
}
