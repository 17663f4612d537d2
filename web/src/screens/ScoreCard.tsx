import type { Json, Opened, Score, Trajectory } from "../api/types"
import { figure, signed } from "../format"
import { Bar, Panel } from "../parts/basics"
import { Safe, Text } from "../parts/Text"

function Values({ values, bars = false }: { values: Record<string, number>; bars?: boolean }) {
  const most = Math.max(...Object.values(values).map(Math.abs), 1e-9)
  return (
    <dl className="values">
      {Object.entries(values).map(([name, value]) => (
        <div key={name}>
          <dt>
            <Safe text={name} />
          </dt>
          <dd>{figure(value)}</dd>
          {bars && <Bar share={value / Math.max(1, most)} />}
        </div>
      ))}
    </dl>
  )
}

/** What a trajectory was worth, and by which parts. */
export function ScoreCard({ trajectory }: { trajectory: Trajectory }) {
  const { score, advantage } = trajectory
  return (
    <Panel title="Score">
      <div className="score">
        <div>
          <span className="quiet">Reward</span>
          <strong>{score ? figure(score.reward) : "unscored"}</strong>
        </div>
        <div>
          <span className="quiet">Advantage</span>
          <strong className={advantage && advantage < 0 ? "tone-bad" : ""}>{signed(advantage)}</strong>
          <Bar share={(advantage ?? 0) / 2} from="middle" />
        </div>
      </div>
      {score && <Parts score={score} />}
    </Panel>
  )
}

function Parts({ score }: { score: Score }) {
  const notes = Object.entries(score.notes)
  return (
    <>
      {Object.keys(score.parts).length > 0 && (
        <section className="card-part">
          <h3>Parts, before weighting</h3>
          <Values values={score.parts} bars />
        </section>
      )}
      {Object.keys(score.metrics).length > 0 && (
        <section className="card-part">
          <h3>Metrics, never trained on</h3>
          <Values values={score.metrics} />
        </section>
      )}
      {notes.length > 0 && (
        <section className="card-part">
          <h3>Notes of the judges</h3>
          {notes.map(([name, note]) => (
            <div key={name}>
              <b>
                <Safe text={name} />
              </b>
              <Text text={note} />
            </div>
          ))}
        </section>
      )}
    </>
  )
}

/** Up to this many characters a value stands on one line. */
const SHORT = 120

/** A plain value: text as it is, the rest as JSON. */
export function plain(value: Json): string {
  if (typeof value === "string") return value
  const line = JSON.stringify(value)
  return line.length <= SHORT ? line.replace(/,(?=["[{])/g, ", ") : JSON.stringify(value, null, 2)
}

const empty = (value: Json): boolean => value === null || (typeof value === "object" && Object.keys(value).length === 0)

/** The task's hidden side and what the environment left. */
export function Facts({ opened }: { opened: Opened }) {
  const { task, state } = opened
  const shown = {
    ...(empty(task.answer) ? {} : { Target: task.answer }),
    ...(empty(task.info) ? {} : { "Task info": task.info }),
  }
  return (
    <>
      {Object.entries(shown).map(([name, value]) => (
        <Panel key={name} title={name}>
          <Text text={plain(value)} className="code pad" />
        </Panel>
      ))}
      <EndState state={state} />
    </>
  )
}

/** What the environment left; nothing where it left nothing. */
export function EndState({ state }: { state: Record<string, Json> }) {
  if (empty(state)) return null
  return (
    <Panel title="State at the end">
      {Object.entries(state).map(([name, value]) => (
        <section key={name} className="card-part">
          <h3>
            <Safe text={name} />
          </h3>
          <Text text={plain(value)} className="code" />
        </section>
      ))}
    </Panel>
  )
}
