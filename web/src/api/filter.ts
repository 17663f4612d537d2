/** The filter language, for static exports; the server speaks the same (`env == "wordle" and reward < 0.2`). */

import { Refused } from "./client"
import type { Field } from "./types"

export type Cell = string | number | null
/** Whether the row at an index passes. */
export type Test = (row: number) => boolean
type Columns = ReadonlyMap<string, Cell[]>

const TOKEN =
  /\s*(?:(?<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?<word>[\p{L}_][\p{L}\p{N}_]*(?:\.(?:[\p{L}\p{N}_]+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))*)|(?<sign>==|!=|<=|>=|<|>|\(|\)|,))/suy

const unquoted = (text: string): string => text.slice(1, -1).replace(/\\(.)/gs, "$1")

/** The name of a field that an expression means by `parts.format` or `metrics."any name"`. */
const named = (text: string): string =>
  (text.match(/[\p{L}\p{N}_]+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/gsu) ?? [])
    .map(word => (/^["']/.test(word) ? unquoted(word) : word))
    .join(".")

interface Token {
  kind: "text" | "number" | "word" | "sign" | "end"
  text: string
  at: number
}

function tokens(source: string, fields: string[]): Token[] {
  const out: Token[] = []
  let from = 0
  while (source.slice(from).trim() !== "") {
    TOKEN.lastIndex = from
    const found = TOKEN.exec(source)
    const start = from + source.slice(from).search(/\S/)
    if (!found?.groups) throw new Refused(`filter: what is ${source.slice(start, start + 12)}?`, 400, start, fields)
    const [kind, text] = Object.entries(found.groups).find(([, value]) => value !== undefined) ?? ["end", ""]
    out.push({ kind: kind as Token["kind"], text: String(text), at: start })
    from = TOKEN.lastIndex
  }
  out.push({ kind: "end", text: "the end", at: source.length })
  return out
}

const COMPARE = new Map<string, (a: string | number, b: string | number) => boolean>([
  ["==", (a, b) => a === b],
  ["<", (a, b) => a < b],
  ["<=", (a, b) => a <= b],
  [">", (a, b) => a > b],
  [">=", (a, b) => a >= b],
])

/** A recursive descent over the tokens; every method takes what it names. */
class Parser {
  private at = 0
  constructor(
    private readonly all: Token[],
    private readonly fields: Field[],
    private readonly columns: Columns,
  ) {}

  whole(): Test {
    const test = this.either()
    if (this.now.kind !== "end") this.fail("`and`, `or` or the end")
    return test
  }

  private get now(): Token {
    return this.all[Math.min(this.at, this.all.length - 1)] as Token
  }

  private fail(wanted: string, at = this.now): never {
    const names = this.fields.map(field => field.text)
    throw new Refused(`filter: expected ${wanted}, found ${at.text}`, 400, at.at, names)
  }

  private take(text: string): boolean {
    const there = this.now.kind !== "text" && this.now.text === text
    if (there) this.at++
    return there
  }

  private either(): Test {
    const tests = [this.both()]
    while (this.take("or")) tests.push(this.both())
    return tests.length === 1 ? (tests[0] as Test) : row => tests.some(test => test(row))
  }

  private both(): Test {
    const tests = [this.not()]
    while (this.take("and")) tests.push(this.not())
    return tests.length === 1 ? (tests[0] as Test) : row => tests.every(test => test(row))
  }

  private not(): Test {
    if (this.take("not")) {
      const test = this.not()
      return row => !test(row)
    }
    if (this.take("(")) {
      const test = this.either()
      if (!this.take(")")) this.fail("`)`")
      return test
    }
    return this.comparison()
  }

  private comparison(): Test {
    const name = this.now
    const field = name.kind === "word" ? this.fields.find(one => one.name === named(name.text)) : undefined
    const column = field && this.columns.get(field.name)
    if (!field || !column) this.fail("a field", name)
    this.at++
    const negated = this.take("not")
    if (this.take("in")) return this.among(column, field, negated)
    if (negated) this.fail("`in`")
    return this.against(column, field)
  }

  private against(column: Cell[], field: Field): Test {
    const sign = this.now.text
    this.at++
    if (sign === "contains") {
      if (field.type !== "text" || this.now.text === "null") this.fail("a field of text, and a text behind `contains`")
      const part = this.value(field)
      return row => column[row] !== null && String(column[row]).includes(String(part))
    }
    if (sign !== "!=" && !COMPARE.has(sign)) {
      this.at--
      this.fail("a comparison (== != < <= > >= in contains)")
    }
    const value = this.value(field)
    if (value === null) {
      if (sign !== "==" && sign !== "!=") this.fail("== or != before null")
      return row => (column[row] === null) === (sign === "==")
    }
    if (sign === "!=") return row => column[row] !== value
    const compare = COMPARE.get(sign) as (a: string | number, b: string | number) => boolean
    return row => {
      const cell = column[row] ?? null
      return cell !== null && compare(cell, value)
    }
  }

  private among(column: Cell[], field: Field, negated: boolean): Test {
    if (!this.take("(")) this.fail("`(`")
    const values = new Set<Cell>([this.value(field)])
    while (this.take(",")) values.add(this.value(field))
    if (!this.take(")")) this.fail("`)`")
    return row => values.has(column[row] ?? null) !== negated
  }

  private value(field: Field): Cell {
    const token = this.now
    this.at++
    if (token.kind === "word" && token.text === "null") return null
    if (token.kind === "number" && field.type === "number") return Number(token.text)
    if (token.kind === "text" && field.type === "text") return unquoted(token.text)
    return this.fail(field.type === "number" ? "a number" : "a text in quotes", token)
  }
}

/** A test of rows; raises Refused with the place and the valid fields. An empty filter passes every row. */
export function parse(source: string, fields: Field[], columns: Columns): Test {
  const names = fields.map(field => field.text)
  return source.trim() === "" ? () => true : new Parser(tokens(source, names), fields, columns).whole()
}
