import { useEffect, useState } from "react"
import { useData } from "../api/data"
import { type Decision, type DraftFolder, type DraftOpened, drafts, folders, review, type Step } from "../api/drafts"
import { Empty, ErrorLine, Link, Panel, Pill, Skeleton, type Tone } from "../parts/basics"
import { line } from "../parts/safe"
import { to } from "../router"

const STATES: Record<string, Tone> = { ready: "plain", easy: "warn", failed: "bad" }
const DECISIONS: Record<string, Tone> = { open: "accent", accepted: "good", rejected: "bad" }

/** Drafted stories: a folder's drafts on the left, the one that is open on the right. */
export default function Drafts({ folder, name }: { folder: string | undefined; name: string | undefined }) {
  const all = useData("drafts", signal => folders(signal))
  const known = all.data?.folders ?? []
  const key = folder ?? (known.length === 1 ? known[0]?.key : undefined)
  return (
    <div className="screen">
      <div className="head">
        <h1>Drafts</h1>
        <span className="quiet grow">Stories that a model has written. Accepted ones are played.</span>
      </div>
      {all.error && !all.data && <ErrorLine error={all.error} />}
      {all.data && known.length === 0 && (
        <Empty title="There are no drafts here">
          <p>
            Have a model write some: <code>wander world write --policy URL --model NAME --out runs/drafts</code>
          </p>
        </Empty>
      )}
      {known.length > 1 && <Folders all={known} here={key} />}
      {key && <Folder folder={key} name={name} />}
    </div>
  )
}

function Folders({ all, here }: { all: DraftFolder[]; here: string | undefined }) {
  return (
    <nav className="tabs" aria-label="Folders of drafts">
      {all.map(one => (
        <Link key={one.key} to={to(["drafts", one.key])} className={one.key === here ? "here" : ""}>
          {line(one.name, 60)} {one.problem ? "(cannot be read)" : `(${one.open} open)`}
        </Link>
      ))}
    </nav>
  )
}

function Folder({ folder, name }: { folder: string; name: string | undefined }) {
  const [news, setNews] = useState(0)
  const { data, error, slow } = useData(`drafts ${folder}`, signal => drafts(folder, signal), news)
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={8} /> : null
  const open = data.drafts.find(one => one.draft.name === name) ?? data.drafts[0]
  return (
    <div className="drafts">
      <ul className="draft-list" aria-label="Drafts">
        {data.drafts.map(one => (
          <li key={one.draft.name}>
            <Link to={to(["drafts", folder, one.draft.name])} className={one === open ? "draft here" : "draft"}>
              <b>{line(one.draft.name, 60)}</b>
              <span>
                <Pill tone={STATES[one.draft.state] ?? "plain"}>{one.draft.state}</Pill>{" "}
                <Pill tone={DECISIONS[one.decision] ?? "plain"}>{one.decision}</Pill>
              </span>
              <small>{line(one.draft.asks || one.draft.reason, 140)}</small>
            </Link>
          </li>
        ))}
      </ul>
      {open && <Draft key={open.draft.name} folder={folder} opened={open} onReviewed={() => setNews(news + 1)} />}
    </div>
  )
}

function Draft(props: { folder: string; opened: DraftOpened; onReviewed: () => void }) {
  const { folder, opened, onReviewed } = props
  const { draft, story } = opened
  const [text, setText] = useState(opened.text)
  const [comment, setComment] = useState("")
  const [error, setError] = useState("")
  const [busy, setBusy] = useState(false)
  useEffect(() => setText(opened.text), [opened.text])
  const changed = text !== opened.text
  const send = async (what: Decision) => {
    setBusy(true)
    setError("")
    try {
      await review(folder, draft.name, what === "edit" ? { do: what, comment, text } : { do: what, comment })
      setComment("")
      onReviewed()
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem))
    } finally {
      setBusy(false)
    }
  }
  const button = (what: Decision, word: string, off: boolean, primary = false) => (
    <button
      type="button"
      className={primary ? "button primary" : "button"}
      disabled={busy || off}
      onClick={() => void send(what)}
    >
      {word}
    </button>
  )
  return (
    <div className="draft-open">
      <Panel
        title={line(draft.name, 80)}
        actions={<Pill tone={DECISIONS[opened.decision] ?? "plain"}>{opened.decision}</Pill>}
      >
        <dl className="draft-facts">
          <dt>Capability</dt>
          <dd>{line(draft.capability, 40)}</dd>
          <dt>Checked</dt>
          <dd>
            {draft.state}
            {draft.reason && `: ${line(draft.reason, 400)}`}
          </dd>
          <dt>Solved</dt>
          <dd>
            {Object.entries(draft.solved)
              .map(([who, [passed, of]]) => `${line(who, 60)} ${passed} of ${of}`)
              .join(", ") || "by nobody yet"}
          </dd>
        </dl>
        {story && <Told story={story} />}
      </Panel>
      <Panel title="Review">
        <label className="draft-field">
          Comment
          <input className="field" value={comment} onChange={event => setComment(event.target.value)} />
        </label>
        {error && <ErrorLine error={error} />}
        <div className="actions">
          {button("accept", "Accept", !opened.text || changed, true)}
          {button("reject", "Reject", !opened.text || changed)}
          {button("comment", "Comment only", !comment)}
          {button("edit", "Check and save the text", !changed)}
        </div>
        {opened.reviews.length > 0 && (
          <ul className="draft-reviews">
            {opened.reviews.map((one, n) => (
              <li key={n}>
                {one.decision}
                {one.comment && `: ${line(one.comment, 400)}`}
              </li>
            ))}
          </ul>
        )}
      </Panel>
      {opened.text && (
        <Panel title="Text">
          <textarea
            className="field draft-text"
            aria-label="The story as JSON"
            spellCheck={false}
            value={text}
            onChange={event => setText(event.target.value)}
          />
        </Panel>
      )}
    </div>
  )
}

/** What happens, step by step. */
function Told({ story }: { story: NonNullable<DraftOpened["story"]> }) {
  return (
    <ol className="draft-steps">
      {(story.before ?? []).map((one, n) => (
        <li key={`before ${n}`} className="quiet">
          before: {said(one)}
        </li>
      ))}
      <li>
        <b>user</b> {line(story.request, 1000)}
      </li>
      {story.then.map((step, n) => (
        <li key={n}>
          <b>{step.report ? "agent" : step.text ? "user" : (step.by ?? "agent")}</b> {acts(step)}
          {step.delay !== undefined && <small className="quiet"> after {step.delay} s</small>}
        </li>
      ))}
    </ol>
  )
}

const said = (one: Record<string, unknown>): string =>
  line(
    Object.entries(one)
      .filter(([, value]) => value !== "" && !(Array.isArray(value) && value.length === 0))
      .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
      .join(" · "),
    600,
  )

const acts = (step: Step): string =>
  line(step.report || step.text || `${step.app}.${step.action} ${JSON.stringify(step.args ?? {})}`, 1000)
