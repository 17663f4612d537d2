/** Rows by the page: a list of any length of which only what is looked at is fetched. */

import { useCallback, useEffect, useRef, useState } from "react"
import { api, Refused } from "./client"
import { useEpoch } from "./stream"
import type { Row } from "./types"

const SIZE = 200
const KEPT = 60
/** Pages that are fetched ahead of the eye. */
const AHEAD = 2

export interface Rows {
  total: number | null
  row: (index: number) => Row | undefined
  /** Fetch what this window needs. */
  sight: (first: number, last: number) => void
  error: Refused | null
  /** True while the first page of a new question is on its way. */
  asking: boolean
  /** True from 200 ms on while there is nothing to show. */
  slow: boolean
}

interface Held {
  question: string
  total: number | null
  pages: Map<number, Row[]>
}

/** The rows of a run under a filter and an order; `news` fetches anew what is in sight, and nothing blinks. */
export function useRows(run: string, filter: string, sort: string, news: unknown): Rows {
  const epoch = useEpoch()
  const question = JSON.stringify([run, filter, sort])
  const held = useRef<Held>({ question, total: null, pages: new Map() })
  const asked = useRef(new Map<number, AbortController>())
  const window = useRef<[number, number]>([0, SIZE])
  const before = useRef(0)
  const [, draw] = useState(0)
  const [slow, setSlow] = useState(false)
  useEffect(() => {
    const late = setTimeout(() => setSlow(true), 200)
    return () => clearTimeout(late)
  }, [])
  const [error, setError] = useState<{ question: string; refused: Refused } | null>(null)

  // Whoever glides goes on: once all that is in sight is there, what comes next is fetched.
  const ahead = useRef(() => {})

  const fetch = useCallback(
    async (page: number) => {
      const abort = new AbortController()
      asked.current.set(page, abort)
      try {
        const { total, rows } = await api.rollouts(
          run,
          { filter, sort, offset: page * SIZE, limit: SIZE },
          abort.signal,
        )
        if (abort.signal.aborted) return
        if (held.current.question !== question) held.current = { question, total, pages: new Map() }
        held.current.total = total
        held.current.pages.delete(page)
        held.current.pages.set(page, rows)
        const oldest = held.current.pages.keys().next().value
        if (held.current.pages.size > KEPT && oldest !== undefined) held.current.pages.delete(oldest)
        setError(null)
        draw(n => n + 1)
        ahead.current()
      } catch (problem) {
        if (abort.signal.aborted) return
        const refused = problem instanceof Refused ? problem : new Refused(String(problem), 0)
        setError({ question, refused })
      } finally {
        if (asked.current.get(page) === abort) asked.current.delete(page)
      }
    },
    [run, filter, sort, question],
  )

  const sight = useCallback(
    (first: number, last: number) => {
      window.current = [first, last]
      const [from, until] = [Math.floor(first / SIZE), Math.floor(Math.max(first, last - 1) / SIZE)]
      for (const [page, abort] of asked.current) {
        if (page < from - AHEAD || page > until + AHEAD) abort.abort()
      }
      const known = (page: number) => held.current.question === question && held.current.pages.has(page)
      const need = (page: number) => {
        if (!known(page) && (!asked.current.has(page) || asked.current.get(page)?.signal.aborted)) void fetch(page)
      }
      for (let page = from; page <= until; page++) need(page)
      const moved = first - before.current
      before.current = first
      ahead.current = () => {
        const end = Math.ceil((held.current.total ?? 0) / SIZE)
        if (moved === 0 || Math.abs(moved) > SIZE) return // at rest, or a jump: nobody knows where to
        for (let page = from; page <= until; page++) if (!known(page)) return
        for (let more = 1; more <= AHEAD; more++) {
          const page = moved > 0 ? until + more : from - more
          if (page >= 0 && page < end) need(page)
        }
      }
      ahead.current()
    },
    [question, fetch],
  )

  // biome-ignore lint/correctness/useExhaustiveDependencies: another question, or news, asks again
  useEffect(() => {
    const same = held.current.question === question
    const [first, last] = same ? window.current : [0, SIZE]
    const pages = new Set([Math.floor(first / SIZE), Math.floor(Math.max(first, last - 1) / SIZE)])
    if (same) for (const page of held.current.pages.keys()) if (!pages.has(page)) held.current.pages.delete(page)
    for (const page of pages) void fetch(page)
    const pending = asked.current
    return () => {
      for (const abort of pending.values()) abort.abort()
      pending.clear()
    }
  }, [question, news, epoch])

  const current = held.current.question === question
  const wrong = error?.question === question ? error.refused : null
  return {
    total: wrong ? 0 : held.current.total,
    row: index => (wrong ? undefined : held.current.pages.get(Math.floor(index / SIZE))?.[index % SIZE]),
    sight,
    error: wrong,
    asking: !current && wrong === null,
    slow,
  }
}
