import { type FormEvent, useMemo, useState } from "react"
import type { Json } from "../api/types"
import type { Plain, Tool } from "../api/world"
import { own, setOwn } from "../own"
import { line } from "../parts/safe"

interface Field {
  name: string
  about: string
  kind: "text" | "number" | "whole" | "yes" | "choice" | "json" | "lines"
  choices: string[]
  needed: boolean
  preset: Json | undefined
}

const record = (value: Json | undefined): Plain =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value : {}
const array = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : [])

/** What a part of a JSON schema asks for; the first kind that is not null where there are several. */
function kindOf(schema: Plain): Field["kind"] {
  if (Array.isArray(schema.enum)) return "choice"
  const types = [schema.type, ...array(schema.anyOf).map(one => record(one).type)].flat().filter(one => one !== "null")
  const type = types.find(one => typeof one === "string")
  if (type === "string") return "text"
  if (type === "integer") return "whole"
  if (type === "number") return "number"
  if (type === "boolean") return "yes"
  const items =
    record(schema.items).type ?? record(record(array(schema.anyOf).find(one => record(one).items)).items).type
  return type === "array" && items === "string" ? "lines" : "json"
}

/** The fields of a tool, those that are needed first. */
export function fields(parameters: Plain): Field[] {
  const needed = new Set(array(parameters.required))
  return Object.entries(record(parameters.properties))
    .map(([name, value]) => {
      const schema = record(value)
      const about = typeof schema.description === "string" ? schema.description : ""
      const choices = array(schema.enum).map(String)
      return { name, about, kind: kindOf(schema), choices, needed: needed.has(name), preset: schema.default }
    })
    .sort((a, b) => Number(b.needed) - Number(a.needed))
}

/** What was typed, as the schema wants it; a text that says what is wrong instead. */
function read(field: Field, typed: string): { value: Json } | { wrong: string } {
  if (field.kind === "text" || field.kind === "choice") return { value: typed }
  if (field.kind === "yes") return { value: typed === "true" }
  if (field.kind === "lines")
    return {
      value: typed
        .split("\n")
        .map(one => one.trim())
        .filter(Boolean),
    }
  if (field.kind === "json") {
    try {
      return { value: JSON.parse(typed) as Json }
    } catch {
      return { wrong: "this is no JSON" }
    }
  }
  const value = Number(typed)
  if (!Number.isFinite(value) || (field.kind === "whole" && !Number.isInteger(value))) {
    return { wrong: field.kind === "whole" ? "this is no whole number" : "this is no number" }
  }
  return { value }
}

interface FormProps {
  tool: Tool
  busy: boolean
  onCall: (call: { name: string; arguments: Plain }) => void
}

/** A tool's arguments to fill in; what is left empty is left out. */
export function Form({ tool, busy, onCall }: FormProps) {
  const all = useMemo(() => fields(tool.parameters), [tool])
  const [typed, setTyped] = useState<Record<string, string>>({})
  const [wrong, setWrong] = useState<Record<string, string>>({})
  const submit = (event: FormEvent) => {
    event.preventDefault()
    const [args, faults]: [Plain, Record<string, string>] = [{}, {}]
    for (const field of all) {
      const text = own(typed, field.name) ?? ""
      if (text === "" && !field.needed) continue
      if (text === "" && field.kind !== "text" && field.kind !== "lines") {
        setOwn(faults, field.name, "this is needed")
        continue
      }
      const found = read(field, text)
      if ("wrong" in found) setOwn(faults, field.name, found.wrong)
      else setOwn(args, field.name, found.value)
    }
    setWrong(faults)
    if (Object.keys(faults).length === 0) onCall({ name: tool.name, arguments: args })
  }
  return (
    <form className="tool-form" onSubmit={submit} aria-label={tool.name}>
      <p className="quiet">{line(tool.description, 400)}</p>
      {all.map(field => (
        <Input
          key={field.name}
          field={field}
          typed={own(typed, field.name) ?? ""}
          wrong={own(wrong, field.name) ?? ""}
          onType={text => setTyped(setOwn({ ...typed }, field.name, text))}
        />
      ))}
      <button type="submit" className="button primary" disabled={busy}>
        Call {line(tool.name.split("__").at(-1) ?? tool.name, 40)}
      </button>
    </form>
  )
}

interface InputProps {
  field: Field
  typed: string
  wrong: string
  onType: (text: string) => void
}

function Input({ field, typed, wrong, onType }: InputProps) {
  const { name, kind, about, needed, preset } = field
  const hint =
    kind === "lines"
      ? "one a line"
      : kind === "json"
        ? "JSON"
        : kind === "whole"
          ? "whole number"
          : kind === "yes"
            ? "yes or no"
            : kind
  const common = {
    id: `arg-${name}`,
    className: "field",
    value: typed,
    "aria-invalid": wrong !== "",
    "aria-describedby": `about-${name}`,
    placeholder: preset === undefined || preset === null ? "" : line(String(preset), 60),
  }
  const long =
    kind === "lines" || kind === "json" || (kind === "text" && /content|text|body|message|description/.test(name))
  return (
    <div className="tool-field">
      <label htmlFor={`arg-${name}`}>
        {line(name, 60)} <span className="quiet">{needed ? "" : "may be left out"}</span>
      </label>
      {kind === "yes" || kind === "choice" ? (
        <select {...common} onChange={event => onType(event.target.value)}>
          <option value="">{needed ? "choose" : "(left out)"}</option>
          {(kind === "yes" ? ["true", "false"] : field.choices).map(one => (
            <option key={one} value={one}>
              {kind === "yes" ? (one === "true" ? "yes" : "no") : line(one, 60)}
            </option>
          ))}
        </select>
      ) : long ? (
        <textarea {...common} rows={kind === "text" ? 4 : 2} onChange={event => onType(event.target.value)} />
      ) : (
        <input
          {...common}
          type="text"
          inputMode={kind === "text" ? "text" : "decimal"}
          onChange={event => onType(event.target.value)}
        />
      )}
      <small id={`about-${name}`} className={wrong ? "field-error" : "quiet"}>
        {wrong || line(kind === "text" ? about : `${about} (${hint})`, 300)}
      </small>
    </div>
  )
}
