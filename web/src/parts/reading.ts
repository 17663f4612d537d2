/** How conversations are read: as they were written, or as markdown. */

import { createContext } from "react"

export const Reading = createContext<"text" | "markdown">("text")

const LONGEST = 100_000
const LONGEST_LINE = 10_000
/** Signs that a parser has to find partners for. */
const SIGNS = 2000
const DEEP = /^(?:[ \t]*(?:>|[-+*]|\d{1,9}[.)])){24}/m

/** Why a text stays as it is written, or "": parsing must not take the page's time. */
export function unfit(text: string): string {
  if (text.length > LONGEST) return "too long"
  for (let from = 0; from < text.length; ) {
    const end = text.indexOf("\n", from)
    const until = end < 0 ? text.length : end
    if (until - from > LONGEST_LINE) return "a line is too long"
    from = until + 1
  }
  if ((text.match(/[[\]<`*_~]/g)?.length ?? 0) > SIGNS || DEEP.test(text)) return "too much nesting"
  return ""
}
