import { memo, useContext } from "react"
import type { Message as Said, ToolCall } from "../api/types"
import { Reading } from "./reading"
import { Text } from "./Text"

/** A tool call's arguments as readable JSON; as they stand where they are not JSON. */
function pretty(raw: string): string {
  if (raw.length > 100_000) return raw
  try {
    return JSON.stringify(JSON.parse(raw), null, 2)
  } catch {
    return raw
  }
}

interface MessageProps {
  message: Said
  /** Results of this message's tool calls, by the call's id. */
  results?: Map<string, Said>
  /** Fetches the whole text of a message that came cut. */
  whole?: (message: Said) => Promise<string>
}

/** One utterance: its role, its text, and its tool calls beside their results. */
export const Message = memo(({ message, results, whole }: MessageProps) => {
  const calls = message.tool_calls ?? []
  const fetch = whole && (() => whole(message))
  const markdown = useContext(Reading) === "markdown" && message.role !== "tool"
  return (
    <article className={`message role-${message.role}`}>
      <h3 className="role">
        {message.role}
        {message.name && <span className="quiet"> {message.name}</span>}
      </h3>
      <div className="message-body">
        {message.reasoning && (
          <details className="reasoning">
            <summary>Reasoning</summary>
            <Text text={message.reasoning} full={message.reasoning_cut} markdown={markdown} />
          </details>
        )}
        {(message.content !== "" || calls.length === 0) && (
          <Text text={message.content} full={message.cut} fetch={fetch} markdown={markdown} />
        )}
        {calls.map((call, at) => (
          <Call key={`${call.id}-${at}`} call={call} result={results?.get(call.id)} whole={whole} />
        ))}
      </div>
    </article>
  )
})

function Call({ call, result, whole }: { call: ToolCall; result?: Said; whole?: MessageProps["whole"] }) {
  return (
    <div className="call">
      <div className="call-made">
        <h4>
          <span className="call-sign">call</span> {call.name}
        </h4>
        <Text text={pretty(call.arguments)} className="code" />
      </div>
      <div className="call-result">
        <h4>
          <span className="call-sign">result</span>
        </h4>
        {result ? (
          <Text text={result.content} full={result.cut} fetch={whole && (() => whole(result))} className="code" />
        ) : (
          <p className="quiet">no result is recorded</p>
        )}
      </div>
    </div>
  )
}
