/** What every app's view gets, and how it reads a state that may be anything. */

import type { Json } from "../../api/types"
import type { Plain } from "../../api/world"

export interface View {
  state: Plain
  /** The world's time at this moment. */
  now: number
  /** Rows that have just changed, as `inbox/ID`. */
  fresh: Set<string>
  /** What is open in the app: a mail, a conversation, a day. */
  open: string
  onOpen: (what: string) => void
}

export const plain = (value: Json | undefined): Plain =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value : {}

/** The rows of a table with their keys; what is no row is left out. */
export const rows = (value: Json | undefined): [string, Plain][] =>
  Object.entries(plain(value)).flatMap(([key, row]) =>
    typeof row === "object" && row !== null && !Array.isArray(row) ? [[key, row] as [string, Plain]] : [],
  )

export const list = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : [])

export const text = (value: Json | undefined): string =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value)

export const number = (value: Json | undefined): number =>
  typeof value === "number" ? value : Number.isFinite(Number(value)) ? Number(value) : 0

export const texts = (value: Json | undefined): string[] => list(value).map(text)

export const money = (value: Json | undefined): string =>
  typeof value === "number"
    ? value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })
    : "\u2013"

/** A time as seconds, also where an app keeps it as `2025-05-28 08:01:24`, with or without a zone. */
export function seconds(value: Json | undefined): number {
  if (typeof value !== "string") return number(value)
  const parsed = Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(value) ? value : `${value.replace(" ", "T")}Z`)
  return Number.isNaN(parsed) ? number(value) : parsed / 1000
}

/** Newest first, by a field of seconds. */
export const newest = (found: [string, Plain][], by: string): [string, Plain][] =>
  [...found].sort(([, a], [, b]) => seconds(b[by]) - seconds(a[by]))

export const mark = (fresh: Set<string>, table: string, key: string): string =>
  fresh.has(`${table}/${key}`) ? " fresh" : ""
