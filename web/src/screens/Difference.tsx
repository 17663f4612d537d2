import { useMemo } from "react"
import { count } from "../format"
import { Panel } from "../parts/basics"
import { Safe } from "../parts/Text"
import { difference, type Part } from "../parts/words"

const SIGNS = { both: undefined, left: "gone", right: "come" } as const

function Side({ parts, leave, name }: { parts: Part[]; leave: Part["kind"]; name: string }) {
  return (
    <div className="text code" dir="auto">
      <h3 className="quiet">{name}</h3>
      {parts
        .filter(part => part.kind !== leave)
        .map((part, at) => {
          const shown = <Safe key={at} text={part.text} />
          if (part.kind === "both") return shown
          return (
            <mark key={at} className={SIGNS[part.kind]}>
              {shown}
            </mark>
          )
        })}
    </div>
  )
}

/** Two texts beside each other, word by word. */
export function Difference(props: { left: string; right: string; names: [string, string]; onClose: () => void }) {
  const { left, right, names, onClose } = props
  const parts = useMemo(() => difference(left, right), [left, right])
  const words = (kind: Part["kind"]) =>
    parts
      .filter(part => part.kind === kind)
      .reduce((sum, part) => sum + part.text.split(/\s+/).filter(Boolean).length, 0)
  const close = (
    <>
      <span className="quiet">
        {parts.every(part => part.kind === "both")
          ? "the same word for word"
          : `${count(words("left"))} words gone, ${count(words("right"))} come`}
      </span>
      <button type="button" className="button small" onClick={onClose}>
        Close
      </button>
    </>
  )
  return (
    <Panel title={`${names[0]} beside ${names[1]}`} actions={close} className="difference">
      <div className="difference-sides">
        <Side parts={parts} leave="right" name={names[0]} />
        <Side parts={parts} leave="left" name={names[1]} />
      </div>
    </Panel>
  )
}
