import { useMemo, useState } from "react"
import type { Plain, Tool } from "../api/world"
import { line } from "../parts/safe"
import { spoken } from "../world/words"
import { Form } from "./Form"

/** `Emails__send_email` is the tool of an app. */
const parts = (name: string): [string, string] => {
  const at = name.indexOf("__")
  return at < 0 ? ["Tools", name] : [name.slice(0, at), name.slice(at + 2)]
}

interface ToolsProps {
  tools: Tool[]
  chosen: string
  busy: boolean
  onChoose: (name: string) => void
  onCall: (call: { name: string; arguments: Plain }) => void
}

/** All that can be called, by app, and the form of the one that is chosen. */
export function Tools({ tools, chosen, busy, onChoose, onCall }: ToolsProps) {
  const [words, setWords] = useState("")
  const here = tools.find(({ name }) => name === chosen)
  const groups = useMemo(() => {
    const out = new Map<string, Tool[]>()
    const wanted = words.toLowerCase().split(/\s+/)
    for (const tool of tools) {
      const text = `${tool.name} ${spoken(tool.name)}`.toLowerCase()
      if (!wanted.every(word => text.includes(word))) continue
      const [app] = parts(tool.name)
      out.set(app, [...(out.get(app) ?? []), tool])
    }
    return [...out]
  }, [tools, words])
  return (
    <div className="tools">
      <input
        data-filter
        type="search"
        className="field"
        placeholder="Find a tool"
        aria-label="Find a tool"
        value={words}
        onChange={event => setWords(event.target.value)}
      />
      {here && (
        <section className="tool-open">
          <header>
            <h3>{line(here.name.replace("__", ": "), 80)}</h3>
            <button type="button" className="button small" onClick={() => onChoose("")}>
              Close
            </button>
          </header>
          <Form key={here.name} tool={here} busy={busy} onCall={onCall} />
        </section>
      )}
      {groups.map(([app, found]) => (
        <details key={app} open={words !== "" || tools.length <= 12}>
          <summary>
            {line(app, 40)} <span className="quiet">{found.length}</span>
          </summary>
          <ul>
            {found.map(tool => (
              <li key={tool.name}>
                <button
                  type="button"
                  aria-pressed={tool.name === chosen}
                  title={line(tool.description, 200)}
                  onClick={() => onChoose(tool.name)}
                >
                  {line(spoken(parts(tool.name)[1]), 60)}
                </button>
              </li>
            ))}
          </ul>
        </details>
      ))}
      {groups.length === 0 && <p className="quiet">No tool has all these words.</p>}
    </div>
  )
}
