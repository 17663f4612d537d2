import { useEffect, useRef } from "react"
import type { Plain } from "../../api/world"
import { line } from "../../parts/safe"
import { Text } from "../../parts/Text"
import { brief, clock, day } from "../words"
import { list, mark, newest, number, plain, rows, text, texts, type View } from "./view"

interface BubbleProps {
  mine: boolean
  who: string
  at: number
  words: string
  note?: string
  fresh?: boolean
}

function Bubble({ mine, who, at, words, note, fresh }: BubbleProps) {
  return (
    <li className={`bubble${mine ? " mine" : ""}${fresh ? " fresh" : ""}`}>
      <p className="bubble-who">
        {line(who, 60)} <time>{clock(at).slice(0, 5)}</time>
      </p>
      <Text text={words} />
      {note && <p className="quiet">{line(note, 100)}</p>}
    </li>
  )
}

/** Conversations, and one to read, as bubbles. */
export function Chats({ state, now, fresh, open, onOpen }: View) {
  const names = plain(state.names)
  const me = text(state.current_user_id)
  const named = (id: string): string => text(names[id]) || id
  const talks = newest(rows(state.conversations), "last_updated")
  const here = talks.find(([key]) => key === open) ?? talks[0]
  const title = (talk: Plain) =>
    text(talk.title) ||
    texts(talk.participant_ids)
      .filter(id => id !== me)
      .map(named)
      .join(", ")
  return (
    <div className="app-split">
      <div className="app-list">
        <ul>
          {talks.map(([key, talk]) => {
            const last = plain(list(talk.messages).at(-1))
            return (
              <li key={key}>
                <button
                  type="button"
                  className={`app-row${mark(fresh, "conversations", key)}`}
                  aria-pressed={here?.[0] === key}
                  onClick={() => onOpen(key)}
                >
                  <span className="app-row-head">
                    <b>{line(title(talk), 40)}</b>
                    <time>{brief(number(talk.last_updated), now)}</time>
                  </span>
                  <span className="quiet">{line(text(last.content), 90)}</span>
                </button>
              </li>
            )
          })}
        </ul>
        {talks.length === 0 && <p className="quiet pad">No conversations.</p>}
      </div>
      {here ? (
        <article className="app-open" aria-label="Conversation">
          <h3>{line(title(here[1]), 80)}</h3>
          <Bubbles key={here[0]} talk={here[1]} {...{ me, named }} fresh={fresh.has(`conversations/${here[0]}`)} />
        </article>
      ) : (
        <div className="app-open" />
      )}
    </div>
  )
}

const SHOWN = 60

function Bubbles(props: { talk: Plain; me: string; named: (id: string) => string; fresh: boolean }) {
  const { talk, me, named, fresh } = props
  const all = list(talk.messages).map(plain)
  const messages = all.slice(-SHOWN)
  const end = useRef<HTMLOListElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the newest message is brought into sight
  useEffect(() => {
    const box = end.current?.parentElement
    if (box) box.scrollTop = box.scrollHeight
  }, [all.length])
  return (
    <ol className="bubbles" ref={end}>
      {all.length > SHOWN && <li className="bubble-day quiet">{all.length - SHOWN} earlier messages</li>}
      {messages.map((one, at) => {
        const before = messages[at - 1]
        const when = number(one.timestamp)
        const turned = !before || day(number(before.timestamp)) !== day(when)
        return [
          turned && (
            <li key={`day ${at}`} className="bubble-day quiet">
              {day(when)}
            </li>
          ),
          <Bubble
            key={text(one.message_id) || at}
            mine={text(one.sender_id) === me}
            who={named(text(one.sender_id))}
            at={when}
            words={text(one.content)}
            note={text(one.attachment_name)}
            fresh={fresh && at === messages.length - 1}
          />,
        ]
      })}
    </ol>
  )
}

/** The talk between the user and the agent. */
export function UserTalk({ state, fresh }: View) {
  const messages = rows(state.messages)
  if (messages.length === 0) return <p className="quiet pad">Nothing was said yet.</p>
  return (
    <div className="app-open app-alone">
      <ol className="bubbles">
        {messages.map(([key, one]) => (
          <Bubble
            key={key}
            mine={text(one.sender) === "Agent"}
            who={text(one.sender)}
            at={number(one.timestamp)}
            words={text(one.content)}
            note={texts(one.attachments).join(", ")}
            fresh={fresh.has(`messages/${key}`)}
          />
        ))}
      </ol>
    </div>
  )
}
