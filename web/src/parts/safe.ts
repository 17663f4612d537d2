/** Hostile text made harmless to look at: what a terminal or a bidi engine would act on becomes visible. */

export interface Piece {
  text: string
  /** "control" pieces stand for something that cannot be seen; `title` says what. */
  kind: "text" | "control"
  title?: string
  /** Colour of an ANSI sequence before it: 0 to 7, and whether it was bold. */
  colour?: number
  bold?: boolean
}

const NAMED: Record<number, [string, string]> = {
  0: ["NUL", "null"],
  7: ["BEL", "bell"],
  8: ["BS", "backspace"],
  13: ["CR", "carriage return"],
  27: ["ESC", "escape"],
  127: ["DEL", "delete"],
  173: ["SHY", "soft hyphen"],
  1564: ["ALM", "Arabic letter mark"],
  8203: ["ZWSP", "zero width space"],
  8206: ["LRM", "left-to-right mark"],
  8207: ["RLM", "right-to-left mark"],
  8234: ["LRE", "left-to-right embedding"],
  8235: ["RLE", "right-to-left embedding"],
  8236: ["PDF", "pop directional formatting"],
  8237: ["LRO", "left-to-right override"],
  8238: ["RLO", "right-to-left override"],
  8288: ["WJ", "word joiner"],
  8294: ["LRI", "left-to-right isolate"],
  8295: ["RLI", "right-to-left isolate"],
  8296: ["FSI", "first strong isolate"],
  8297: ["PDI", "pop directional isolate"],
  65279: ["BOM", "byte order mark"],
}

// A change of colours, or one character that would not be seen as itself.
const ODD =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  /\u001b\[[0-9;:]{0,40}m|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]|[\u{e0000}-\u{e007f}]/gu

function control(sequence: string): Piece {
  const code = sequence.codePointAt(0) ?? 0
  const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`
  const [short, long] = NAMED[code] ?? [hex, code >= 0xd800 && code < 0xe000 ? "half a character" : "control character"]
  return { text: `${short}${sequence.slice(1)}`, kind: "control", title: `${hex} ${long}` }
}

type Look = { colour?: number; bold?: boolean }

function restyle(look: Look, sequence: string): Look {
  const codes = sequence.slice(2, -1).split(/[;:]/).map(Number)
  let next = look
  for (const code of codes) {
    if (code === 0) next = {}
    else if (code === 1) next = { ...next, bold: true }
    else if (code === 22) next = { ...next, bold: false }
    else if (code === 39) next = { ...next, colour: undefined }
    else if (code >= 30 && code <= 37) next = { ...next, colour: code - 30 }
    else if (code >= 90 && code <= 97) next = { ...next, colour: code - 90 }
  }
  return next
}

/** Cut a text into what is shown as it is and what is only named. Nothing is left out. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = []
  let look: Look = {}
  let from = 0
  for (const found of text.matchAll(ODD)) {
    if (found.index > from) out.push({ text: text.slice(from, found.index), kind: "text", ...look })
    from = found.index + found[0].length
    out.push(control(found[0]))
    if (found[0].startsWith("\u001b[")) look = restyle(look, found[0])
  }
  if (from < text.length) out.push({ text: text.slice(from), kind: "text", ...look })
  return out
}

/** For one-line places: line ends and tabs as `\n` and `\t`, nothing invisible, at most `limit` characters. */
export function line(text: string, limit = 200): string {
  const short = text.length > limit ? `${text.slice(0, limit)}\u2026` : text
  return pieces(short)
    .map(piece => (piece.kind === "text" ? piece.text : `\u27e8${piece.text}\u27e9`))
    .join("")
    .replaceAll("\n", "\\n")
    .replaceAll("\t", "\\t")
}
