/** The fields that the filter box offers while one types. */

import type { Field } from "../api/types"

export const MAX_OFFERED = 16

/** The name that is being typed at the end of an expression; empty after a space, a sign or a value. */
const typed = (draft: string): string =>
  /(?:^|[\s(])(?:[\p{L}_][\p{L}\p{N}_]*(?:\.(?:[\p{L}\p{N}_.]*|"[^"]*))?)$/u
    .exec(draft)?.[0]
    .trimStart()
    .replace(/^\(/, "") ?? ""

/** The fields whose name has what is being typed, parts and metrics where nothing is; and how many there are. */
export function offered(draft: string, fields: Field[]): { fields: Field[]; all: number } {
  const word = typed(draft).replace(/"/g, "").toLowerCase()
  const found = fields.filter(({ name }) => (word === "" ? name.includes(".") : name.toLowerCase().includes(word)))
  return { fields: found.slice(0, MAX_OFFERED), all: found.length }
}

/** The expression with that field in the place of what is being typed. */
export function completed(draft: string, field: Field): string {
  const word = typed(draft)
  const before = draft.slice(0, draft.length - word.length)
  const joined = word === "" && /[^\s(]\s*$/.test(before) && !/\b(?:and|or|not)\s*$/.test(before)
  return `${joined ? `${before.trimEnd()} and ` : before}${field.text} `
}
