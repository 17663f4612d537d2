import { lazy, memo, type ReactNode, Suspense, useMemo, useState } from "react"
import { count } from "../format"
import { unfit } from "./reading"
import { type Piece, pieces } from "./safe"

const Markdown = lazy(() => import("./Markdown"))

const FOLD_CHARACTERS = 4000
const FOLD_LINES = 60
const BLOCK = 50_000

function show(piece: Piece, at: number): ReactNode {
  if (piece.kind === "control") {
    return (
      <span key={at} className="control" title={piece.title}>
        {piece.text}
      </span>
    )
  }
  if (piece.colour === undefined && !piece.bold) return piece.text
  const colour = piece.colour === undefined ? "" : `ansi-${piece.colour}`
  return (
    <span key={at} className={piece.bold ? `${colour} ansi-bold` : colour}>
      {piece.text}
    </span>
  )
}

/** Text with what cannot be seen made visible; nothing in it is ever markup. */
export const Safe = memo(({ text }: { text: string }) => <>{pieces(text).map(show)}</>)

/** Whether a text is laid out by hand (a board, a table): lines of one length under each other, or columns of spaces. */
function drawn(text: string): boolean {
  const lines = text.slice(0, FOLD_CHARACTERS).split("\n")
  const alike = lines.filter(
    (line, at) => line.length > 1 && line.length < 100 && line.length === lines[at + 1]?.length,
  )
  return alike.length >= 2 || /\S {3,}\S|[\u2500-\u257f]|^\s*\|.*\|\s*$/m.test(text.slice(0, FOLD_CHARACTERS))
}

/** Blocks of a huge text: cut at a line's end where there is one, never inside a character. */
function cutUp(text: string): string[] {
  const out: string[] = []
  for (let from = 0; from < text.length || from === 0; ) {
    let until = Math.min(text.length, from + BLOCK)
    const line = text.lastIndexOf("\n", until) + 1
    if (until < text.length && line > from + BLOCK / 2) until = line
    else if (until < text.length && /[\ud800-\udbff]/.test(text[until - 1] ?? "")) until--
    out.push(text.slice(from, until))
    if (until >= text.length) break
    from = until
  }
  return out
}

function folded(text: string): number {
  let end = 0
  for (let lines = 0; lines < FOLD_LINES; lines++) {
    end = text.indexOf("\n", end) + 1
    if (end === 0) return Math.min(text.length, FOLD_CHARACTERS)
  }
  return Math.min(end - 1, FOLD_CHARACTERS)
}

interface TextProps {
  text: string
  /** Full length when the server cut the text, and how to get the rest. */
  full?: number
  fetch?: () => Promise<string>
  className?: string
  /** What comes before and is known already: shown quietly. */
  lead?: string
  /** Read it as markdown where that can be done. */
  markdown?: boolean
}

/** A text of any length, as it was written: folded when it is long, drawn in blocks when it is huge. */
export const Text = memo(({ text, full, fetch, className, lead, markdown }: TextProps) => {
  const [whole, setWhole] = useState<string | null>(null)
  const [open, setOpen] = useState(false)
  const [trouble, setTrouble] = useState("")
  const all = whole ?? text
  const cut = folded(all)
  const length = whole === null && fetch ? (full ?? all.length) : all.length
  const lost = fetch ? 0 : (full ?? 0)
  const long = length > cut
  const unfold = async () => {
    if (full !== undefined && whole === null && fetch) {
      try {
        setWhole(await fetch())
      } catch (error) {
        setTrouble(error instanceof Error ? error.message : String(error))
        return
      }
    }
    setOpen(!open)
  }
  const shown = open ? all : all.slice(0, cut)
  const blocks = useMemo(() => cutUp(shown), [shown])
  const why = useMemo(() => (markdown ? unfit(shown) : ""), [markdown, shown])
  const parsed = markdown && why === "" && shown !== ""
  const plain = blocks.map((block, at) => (
    <span key={at} className={blocks.length > 1 ? "text-block" : undefined}>
      <Safe text={block} />
    </span>
  ))
  return (
    <div className={["text", className, !parsed && drawn(all) && "code"].filter(Boolean).join(" ")} dir="auto">
      {lead && (
        <span className="quiet">
          <Safe text={lead} />
        </span>
      )}
      {parsed ? (
        <Suspense fallback={plain}>
          <Markdown text={shown} plain={plain} />
        </Suspense>
      ) : (
        plain
      )}
      {why && <span className="unfit">Shown as text: {why} to be read as markdown.</span>}
      {length === 0 && !lead && <span className="quiet">(empty)</span>}
      {long && (
        <button type="button" className="fold" onClick={unfold} aria-expanded={open}>
          {open ? "Fold" : `Show all ${count(length)} characters`}
        </button>
      )}
      {lost > 0 && <span className="unfit">{`Cut: the first ${count(all.length)} of ${count(lost)} characters.`}</span>}
      {trouble && <span className="field-error">{trouble}</span>}
    </div>
  )
})
