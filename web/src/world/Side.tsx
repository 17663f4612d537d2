import { type ReactNode, useEffect, useRef } from "react"
import type { Json } from "../api/types"
import type { Entry, Expected, World } from "../api/world"
import { percent } from "../format"
import { Choose, Pill, type Tone } from "../parts/basics"
import { line } from "../parts/safe"
import { Text } from "../parts/Text"
import type { Difference } from "./past"
import { tone } from "./Timeline"
import { clock, named, notices, said, spoken, told } from "./words"

interface SideProps {
  world: World
  n: number
  onMove: (n: number) => void
}

/** The log, line by line, with what is under the scrubber in sight. */
export function Log({ world, n, onMove }: SideProps) {
  const here = useRef<HTMLLIElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the line of another moment is brought into sight
  useEffect(() => {
    here.current?.scrollIntoView({ block: "nearest" })
  }, [n])
  return (
    <ol className="log">
      {world.entries.map((entry, at) => (
        <li key={at} ref={entry.n === n ? here : undefined}>
          <button
            type="button"
            className={`log-line tone-of-${tone(entry)}${entry.n === null || entry.n > n ? " later" : ""}`}
            aria-current={entry.n === n ? "step" : undefined}
            disabled={entry.n === null}
            onClick={() => entry.n !== null && onMove(entry.n)}
          >
            <time>{entry.time === null ? "\u2013" : clock(entry.time)}</time>
            <span className="log-by">{entry.app === "world" ? "" : line(named(entry.app), 20)}</span>
            <span className="log-said">
              {line(said(entry), 120)}
              {entry.app !== "world" && <span className="log-args"> {line(told(entry.args), 160)}</span>}
              {entry.kind === "notification" && (
                <span className="log-args">
                  {" "}
                  {line(
                    notices(entry)
                      .map(one => one.text)
                      .join("; "),
                    160,
                  )}
                </span>
              )}
              {entry.status === "pending" && <span className="quiet"> never came</span>}
              {entry.error && <span className="tone-bad"> {line(entry.error, 120)}</span>}
              {entry.extra && <span className="tone-bad"> nobody asked for it</span>}
            </span>
          </button>
        </li>
      ))}
    </ol>
  )
}

const shown = (value: Json | undefined): string =>
  value === undefined ? "" : typeof value === "string" ? value : (JSON.stringify(value, null, 1) ?? "")

/** What an entry did, with all its arguments and its result. */
export function Detail({ entry }: { entry: Entry | undefined }) {
  if (!entry) return <p className="quiet pad">The start: nothing has happened yet.</p>
  const args = Object.entries(entry.args)
  return (
    <div className="detail">
      <p>
        <b>
          {entry.app !== "world" && `${line(named(entry.app), 40)}: `}
          {line(said(entry), 200)}
        </b>{" "}
        <span className="quiet">
          line {entry.n}, {clock(entry.time ?? 0)}, by {entry.by}
        </span>
      </p>
      {entry.matched && <Pill tone="good">as expected: {line(entry.matched, 60)}</Pill>}
      {entry.extra && <Pill tone="bad">nobody asked for it</Pill>}
      {entry.kind === "notification" && notices(entry).map((one, at) => <Text key={at} text={one.text} />)}
      {args.length > 0 && (
        <dl>
          {args.map(([name, value]) => (
            <div key={name}>
              <dt>{line(name, 40)}</dt>
              <dd>
                <Text text={shown(value)} />
              </dd>
            </div>
          ))}
        </dl>
      )}
      {entry.error ? (
        <p className="tone-bad">{line(entry.error, 500)}</p>
      ) : (
        entry.result !== null &&
        entry.kind !== "notification" && (
          <details>
            <summary>Result</summary>
            <Text text={shown(entry.result)} className="code" />
          </details>
        )
      )}
    </div>
  )
}

interface ChangesProps {
  found: Difference[]
  from: number | null
  n: number
  onFrom: (from: number | null) => void
}

/** What is different: since the entry before, since the start, or since a moment that was kept. */
export function Changes({ found, from, n, onFrom }: ChangesProps) {
  return (
    <div className="changes">
      <div className="changes-bar">
        <Choose
          label="Compared with"
          value={from === null ? "before" : from === -1 ? "start" : "kept"}
          onChoose={value => onFrom(value === "before" ? null : value === "start" ? -1 : n)}
          choices={[
            { value: "before", label: "One before" },
            { value: "start", label: "The start" },
            { value: "kept", label: from !== null && from >= 0 ? `Line ${from}` : "From here" },
          ]}
        />
      </div>
      {found.length === 0 && <p className="quiet pad">Nothing is different.</p>}
      <ul>
        {found.map(({ app, path, before, after }) => (
          <li key={`${app} ${path.join("/")}`}>
            <p>
              <b>{line(named(app), 40)}</b> <span className="mono quiet">{line(path.join(" \u203a "), 120)}</span>
            </p>
            {before !== undefined && <Text text={shown(before)} className="code was" />}
            {after !== undefined && <Text text={shown(after)} className="code is" />}
          </li>
        ))}
      </ul>
    </div>
  )
}

/** Everything that the agent was told until now. */
export function Notices({ world, n, onMove }: SideProps) {
  const told = world.entries.filter(entry => entry.kind === "notification")
  if (told.length === 0) return <p className="quiet pad">The agent was told of nothing.</p>
  return (
    <ol className="notices">
      {told.map(entry => (
        <li key={entry.n} className={entry.n !== null && entry.n > n ? "later" : ""}>
          {notices(entry).map((notice, at) => (
            <button key={at} type="button" className="notice" onClick={() => entry.n !== null && onMove(entry.n)}>
              <span className="app-row-head">
                <b>{line(notice.by === "user" ? "the user" : notice.app, 40)}</b>
                <time>{clock(notice.time)}</time>
              </span>
              <Text text={notice.text} />
            </button>
          ))}
        </li>
      ))}
    </ol>
  )
}

export const DECISIONS = new Map<string, [string, Tone]>(
  Object.entries({
    accept: ["accepted", "good"],
    reject: ["rejected", "bad"],
    undecided: ["undecided", "warn"],
  }),
)

/** What the verifier says, act by act: where each was done, or why it counts as missed. */
export function Judgement({ world, onMove }: Omit<SideProps, "n">) {
  const { verdict, oracle } = world
  if (!verdict) return <p className="quiet pad">Without its scenario this world cannot be judged.</p>
  const extra = world.entries.filter(entry => entry.extra)
  const [word, kind] = DECISIONS.get(verdict.decision) ?? ["?", "plain"]
  const general = verdict.reasons.filter(reason => !reason.event && reason.fault !== "extra")
  return (
    <div className="judgement">
      <p>
        <Pill tone={kind}>{word}</Pill> {percent(verdict.share)} of {oracle.length} expected acts were certainly done
      </p>
      <ol>
        {oracle.map(act => (
          <Act key={act.id} act={act} onMove={onMove} />
        ))}
        {extra.map(entry => (
          <Row key={`x${entry.n}`} tone="bad" sign={"\u00d7"} onOpen={() => onMove(entry.n ?? -1)}>
            <b>
              {line(named(entry.app), 40)}: {line(spoken(entry.action), 60)}
            </b>
            <span className="quiet">{line(told(entry.args), 200)}</span>
            <span className="tone-bad">nobody asked for it (line {entry.n})</span>
          </Row>
        ))}
      </ol>
      {general.map(({ text }) => (
        <p key={text} className="tone-bad">
          {line(text, 400)}
        </p>
      ))}
      {Object.entries(verdict.marks).map(([name, kept]) => (
        <p key={name}>
          <Pill tone={kept ? "good" : "bad"}>{kept ? "kept" : "not kept"}</Pill> {line(name, 80)}
        </p>
      ))}
      {verdict.questions.map(one => (
        <p key={`${one.event} ${one.n}`} className="tone-warn">
          Only a judge can tell whether line {one.n} is {line(one.event, 60)}: {line(one.about.join(", "), 120)}
        </p>
      ))}
    </div>
  )
}

function Act({ act, onMove }: { act: Expected; onMove: (n: number) => void }) {
  const { matched } = act
  return (
    <Row
      tone={matched === null ? "bad" : "good"}
      sign={matched === null ? "\u2013" : "\u2713"}
      onOpen={matched === null ? undefined : () => onMove(matched)}
    >
      <b>
        {line(named(act.app), 40)}: {line(spoken(act.action), 60)}
      </b>
      <span className="quiet">{line(told(act.args), 200)}</span>
      {matched !== null && <span className="tone-good">done in line {matched}</span>}
      {act.why && (
        <span className="tone-bad">{line(act.why.replace(`${act.id} (${act.app}.${act.action}): `, ""), 400)}</span>
      )}
    </Row>
  )
}

function Row(props: { tone: Tone; sign: string; onOpen?: () => void; children: ReactNode }) {
  return (
    <li>
      <button type="button" className="oracle-act" disabled={!props.onOpen} onClick={props.onOpen}>
        <span className={`act-sign tone-${props.tone}`} aria-hidden="true">
          {props.sign}
        </span>
        <span className="act-body">{props.children}</span>
      </button>
    </li>
  )
}
