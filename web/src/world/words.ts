/** How a world's times and deeds are said. */

import type { Entry, Plain } from "../api/world"
import type { Json } from "../api/types"

const two = (n: number): string => String(n).padStart(2, "0")

/** 10:02:11, in UTC as the world has it. */
export function clock(seconds: number): string {
  const at = new Date(seconds * 1000)
  if (Number.isNaN(at.getTime())) return "?"
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

/** Wed 28 May. */
export function day(seconds: number): string {
  const at = new Date(seconds * 1000)
  if (Number.isNaN(at.getTime())) return "?"
  return `${DAYS[at.getUTCDay()]} ${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`
}

/** Wed 28 May 2025, 10:02; the time alone where it is of the same day as `now`. */
export function moment(seconds: Json | undefined, now?: number): string {
  if (typeof seconds !== "number") return typeof seconds === "string" ? seconds : "\u2013"
  const short = clock(seconds).slice(0, 5)
  if (now !== undefined && Math.floor(now / 86_400) === Math.floor(seconds / 86_400)) return short
  const year = new Date(seconds * 1000).getUTCFullYear()
  return `${day(seconds)} ${year}, ${short}`
}

/** For lists: 08:01 on the same day, else 27 May, with the year where it is another. */
export function brief(seconds: number, now: number): string {
  if (Math.floor(now / 86_400) === Math.floor(seconds / 86_400)) return clock(seconds).slice(0, 5)
  const [at, today] = [new Date(seconds * 1000), new Date(now * 1000)]
  if (Number.isNaN(at.getTime())) return "?"
  const year = at.getUTCFullYear() === today.getUTCFullYear() ? "" : ` ${at.getUTCFullYear()}`
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}${year}`
}

/** 7 s, 2 min 05 s, 3 h 10 min. */
export function span(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))} s`
  const whole = Math.round(seconds)
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${two(whole % 60)} s` : ""}`
  if (whole < 172_800) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`
}

/** How an app is called: the one that the user speaks through is the user. */
export const named = (app: string): string => (app === "AgentUserInterface" ? "User" : app)

/** An action as words: send email. */
export const spoken = (action: string): string => action.replaceAll("_", " ")

const short = (value: Json): string => {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "")
  return text.length > 60 ? `${text.slice(0, 59)}\u2026` : text
}

export const told = (args: Plain): string =>
  Object.entries(args)
    .map(([name, value]) => `${name} ${short(value)}`)
    .join(", ")

export interface Notice {
  app: string
  by: string
  time: number
  text: string
}

/** What the agent was told in an entry. */
export const notices = (entry: Entry): Notice[] =>
  (Array.isArray(entry.result) ? entry.result : []).map(one => {
    const notice = typeof one === "object" && one !== null && !Array.isArray(one) ? one : {}
    return { app: String(notice.app), by: String(notice.by), time: Number(notice.time), text: String(notice.text) }
  })

/** What an entry says in one line. */
export function said(entry: Entry): string {
  const args = entry.args
  switch (entry.kind) {
    case "think": {
      const seat = String(args.why).replace(/^thinking ?/, "")
      return `${seat && `${seat} `}thinks for ${span(Number(args.seconds))}`
    }
    case "time":
      return `${span(Number(args.seconds))} go by`
    case "wait":
      return entry.until !== undefined && entry.time !== null ? `waits ${span(entry.until - entry.time)}` : "waits"
    case "notification": {
      const many = notices(entry).length
      return `${many} notice${many === 1 ? "" : "s"}`
    }
    case "match":
      return `recognised as ${String(args.event)}`
    case "turn":
      return `turn ${Number(args.turn) + 1}: ${String(args.decision)}`
    case "stop":
      return `the world stops: ${String(args.reason)}`
    case "condition":
      return `${entry.action} ${entry.id ?? ""}: ${entry.error ?? "came true"}`
    default:
      return spoken(entry.action)
  }
}
