import { type CSSProperties, type ReactNode, useEffect, useState } from "react"
import type { Refused } from "../api/client"
import { go, href } from "../router"

/** A link inside the page; with a modifier key it opens a tab as links do. */
export function Link(props: { to: string; className?: string; title?: string; label?: string; children: ReactNode }) {
  return (
    <a
      href={href(props.to)}
      className={props.className}
      title={props.title}
      aria-label={props.label}
      onClick={event => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return
        event.preventDefault()
        go(props.to)
      }}
    >
      {props.children}
    </a>
  )
}

export function Panel(props: { title?: ReactNode; actions?: ReactNode; className?: string; children: ReactNode }) {
  return (
    <section className={props.className ? `panel ${props.className}` : "panel"}>
      {(props.title || props.actions) && (
        <header className="panel-head">
          <h2>{props.title}</h2>
          {props.actions && <div className="actions">{props.actions}</div>}
        </header>
      )}
      {props.children}
    </section>
  )
}

/** Nothing here yet: what would be here, and how to get it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <svg viewBox="0 0 96 40" width="96" height="40" aria-hidden="true">
        <path d="M2 36c14-2 18-32 32-32s16 20 26 20 11-9 15-9 10 12 19 21" />
        <path d="M18 36c8-4 9-22 16-22s8 16 20 19" />
        <path d="M27 36c4-3 4-12 7-12s5 9 9 11" />
      </svg>
      <h2>{title}</h2>
      {children && <div className="empty-body">{children}</div>}
    </div>
  )
}

/** One line that says what is wrong and what to do. */
export function ErrorLine({ error, children }: { error: Refused | string; children?: ReactNode }) {
  return (
    <div className="error-line" role="alert">
      <span className="error-sign" aria-hidden="true">
        !
      </span>
      <span>{typeof error === "string" ? error : error.message}</span>
      {children}
    </div>
  )
}

const WIDTHS = [92, 74, 86, 61, 95, 80, 68]

/** Grey bars where figures will stand. */
export function Skeleton({ lines = 6 }: { lines?: number }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, n) => (
        <i key={n} style={{ width: `${WIDTHS[n % WIDTHS.length]}%` }} />
      ))}
    </div>
  )
}

export type Tone = "plain" | "good" | "bad" | "warn" | "accent"

export function Pill({ tone = "plain", title, children }: { tone?: Tone; title?: string; children: ReactNode }) {
  return (
    <span className={`pill pill-${tone}`} title={title}>
      {children}
    </span>
  )
}

/** A figure with its name above it. */
export function Figure({ name, value, note, tone }: { name: string; value: ReactNode; note?: ReactNode; tone?: Tone }) {
  return (
    <div className="figure">
      <dt>{name}</dt>
      <dd className={tone && tone !== "plain" ? `tone-${tone}` : undefined}>
        {value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  )
}

/** A bar from the middle (signed) or from the left, as long as `share` of the room says (-1 to 1). */
export function Bar({ share, from = "left" }: { share: number; from?: "left" | "middle" }) {
  const size = Math.min(1, Math.abs(share)) * (from === "middle" ? 50 : 100)
  const style: CSSProperties = { width: `${size}%`, marginLeft: from === "left" ? 0 : `${share < 0 ? 50 - size : 50}%` }
  return (
    <span className={`meter meter-${from}`} aria-hidden="true">
      <i className={share < 0 ? "below" : undefined} style={style} />
    </span>
  )
}

/** Copies a text; says so for a moment. */
export function Copy({ text, what, primary = false }: { text: string; what: string; primary?: boolean }) {
  const [said, setSaid] = useState("")
  useEffect(() => {
    const quiet = setTimeout(() => setSaid(""), 1600)
    return () => clearTimeout(quiet)
  })
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setSaid("Copied"),
      () => setSaid("Not allowed"),
    )
  return (
    <button type="button" className={primary ? "button primary" : "button"} onClick={copy} title={text.slice(0, 400)}>
      <span aria-live="polite">{said || what}</span>
    </button>
  )
}

export interface Choice {
  value: string
  label: string
}

/** A few ways of seeing one thing; the chosen one is pressed. */
export function Choose(props: { label: string; choices: Choice[]; value: string; onChoose: (value: string) => void }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be laid out in a line
    <div className="choose" role="group" aria-label={props.label}>
      {props.choices.map(({ value, label }) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChoose(value)}>
          {label}
        </button>
      ))}
    </div>
  )
}
