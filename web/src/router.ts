/** Where we are: every state of the page is in its address, behind the hash in a static export. */

import { useCallback, useMemo, useSyncExternalStore } from "react"
import { EXPORTED } from "./api/client"

export interface Place {
  /** Decoded parts of the path. */
  parts: string[]
  query: URLSearchParams
}

type Query = Record<string, string | number | null | undefined>

const MOVED = "studio-moved"

const here = (): string =>
  EXPORTED ? window.location.hash.slice(1) || "/" : window.location.pathname + window.location.search

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

function read(address: string): Place {
  const [path = "", query = ""] = address.split(/\?(.*)/s)
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) }
}

/** `to(["run", key, "rollouts"], {sort: "-reward"})`: an address; empty values are left out. */
export function to(parts: (string | number)[], query: Query = {}): string {
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, String(value))
  }
  const path = `/${parts.map(part => encodeURIComponent(String(part))).join("/")}`
  return asked.size ? `${path}?${asked}` : path
}

/** What an `<a href>` needs for an address. */
export const href = (address: string): string => (EXPORTED ? `${window.location.pathname}#${address}` : address)

export function go(address: string, options: { replace?: boolean } = {}): void {
  if (address === here()) return
  window.history[options.replace ? "replaceState" : "pushState"](null, "", href(address))
  window.dispatchEvent(new Event(MOVED))
}

function subscribe(listener: () => void): () => void {
  const names = [MOVED, "popstate", "hashchange"]
  for (const name of names) window.addEventListener(name, listener)
  return () => {
    for (const name of names) window.removeEventListener(name, listener)
  }
}

export function usePlace(): Place {
  const address = useSyncExternalStore(subscribe, here)
  return useMemo(() => read(address), [address])
}

/** The query, and a way to change some of it: `change({page: 2, old: null})` replaces, `step` leaves a step back. */
export function useQuery(): [URLSearchParams, (some: Query, options?: { step?: boolean }) => void] {
  const { query } = usePlace()
  const change = useCallback((some: Query, options: { step?: boolean } = {}) => {
    const now = read(here())
    const all = { ...Object.fromEntries(now.query), ...some }
    go(to(now.parts, all), { replace: !options.step })
  }, [])
  return [query, change]
}
