import { line } from "../../parts/safe"
import { Text } from "../../parts/Text"
import { brief, moment } from "../words"
import { mark, newest, number, plain, rows, text, texts, type View } from "./view"

const FOLDERS = { inbox: "Inbox", sent: "Sent", draft: "Drafts", trash: "Trash" }

/** Folders, the mails of one, and one to read. */
export function Mail({ state, now, fresh, open, onOpen }: View) {
  const [folder, id] = open.split("/")
  const shown = folder && Object.hasOwn(FOLDERS, folder) ? folder : "inbox"
  const mails = newest(rows(state[shown]), "timestamp")
  const here = mails.find(([key]) => key === id) ?? mails[0]
  return (
    <div className="app-split">
      <div className="app-list">
        <nav className="app-folders" aria-label="Folders">
          {Object.entries(FOLDERS).map(([name, label]) => {
            const count = rows(state[name]).length
            const changed = [...fresh].some(path => path.startsWith(`${name}/`))
            return (
              <button
                key={name}
                type="button"
                aria-pressed={name === shown}
                className={changed ? "fresh" : ""}
                onClick={() => onOpen(`${name}/`)}
              >
                {label} <span className="quiet">{count}</span>
              </button>
            )
          })}
        </nav>
        {mails.length === 0 && <p className="quiet pad">Nothing in here.</p>}
        <ul>
          {mails.map(([key, mail]) => (
            <li key={key}>
              <button
                type="button"
                className={`app-row${mail.is_read === false && shown === "inbox" ? " unread" : ""}${mark(fresh, shown, key)}`}
                aria-pressed={here?.[0] === key}
                onClick={() => onOpen(`${shown}/${key}`)}
              >
                <span className="app-row-head">
                  <b>{line(shown === "inbox" ? text(mail.sender) : texts(mail.recipients).join(", "), 60)}</b>
                  <time>{brief(number(mail.timestamp), now)}</time>
                </span>
                <span>{line(text(mail.subject) || "(no subject)", 90)}</span>
                <span className="quiet">{line(text(mail.content), 110)}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
      {here ? <Open mail={here[1]} now={now} /> : <div className="app-open" />}
    </div>
  )
}

function Open({ mail }: { mail: View["state"]; now: number }) {
  const files = Object.keys(plain(mail.attachments))
  return (
    <article className="app-open" aria-label="Mail">
      <h3>{line(text(mail.subject) || "(no subject)", 200)}</h3>
      <dl className="app-facts">
        <Fact name="From" value={text(mail.sender)} />
        <Fact name="To" value={texts(mail.recipients).join(", ")} />
        <Fact name="Cc" value={texts(mail.cc).join(", ")} />
        <Fact name="At" value={moment(mail.timestamp)} />
        <Fact name="Files" value={files.join(", ")} />
      </dl>
      <Text text={text(mail.content)} />
    </article>
  )
}

export function Fact({ name, value }: { name: string; value: string }) {
  if (value === "") return null
  return (
    <div>
      <dt>{name}</dt>
      <dd>{line(value, 300)}</dd>
    </div>
  )
}
