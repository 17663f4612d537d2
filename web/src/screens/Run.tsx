import { useMemo, useState } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import { useNews, useTick } from "../api/stream"
import type { Finding, Json, Run as RunData, RunEvent } from "../api/types"
import { useRun } from "../api/run"
import { count, duration, figure, percent } from "../format"
import { Empty, ErrorLine, Figure, Link, Panel, Skeleton } from "../parts/basics"
import { Safe } from "../parts/Text"
import { to, useQuery } from "../router"
import { Charts } from "./Charts"
import { EvaluationResult } from "./EvaluationResult"
import { NotBegun } from "./NotBegun"
import { Outcome } from "./Outcome"
import { RunHead } from "./RunHead"
import { StepGroups } from "./StepGroups"
import { TrainingResult } from "./TrainingResult"

const object = (body: Json): body is { [key: string]: Json } =>
  typeof body === "object" && body !== null && !Array.isArray(body)

/** Findings among the events; one that is not in the agreed shape is shown with what it has. */
function findingsOf(events: RunEvent[]): Finding[] {
  return events.flatMap(({ kind, body }) => {
    if (kind !== "reward_hacking_warning" || !object(body)) return []
    const { monitor = "", step = 0, stage = "", text = "", evidence, figure: size } = body
    const ids = Array.isArray(evidence) ? evidence.map(Number).filter(Number.isInteger) : []
    const number = typeof size === "number" ? size : null
    return [
      {
        monitor: String(monitor),
        step: Number(step),
        stage: String(stage),
        text: String(text),
        evidence: ids,
        figure: number,
      },
    ]
  })
}

/** Lines of advice among the events, with the number of steps they were given after. */
function adviceOf(events: RunEvent[]): { steps: number; text: string }[] {
  return events.flatMap(({ kind, body }) =>
    kind === "advice" && object(body) ? [{ steps: Number(body.step ?? 0) + 1, text: String(body.text ?? "") }] : [],
  )
}

/** Screen 2: how a run goes. */
export default function Run({ run: key }: { run: string }) {
  const { data: run, error, slow } = useRun(key)
  const gone = useNews().runs.get(key) === null
  const tick = useTick(key)
  const events = useData(`events ${key}`, signal => api.events(key, signal), tick?.event)
  const [query, change] = useQuery()
  const findings = useMemo(() => findingsOf(events.data?.events ?? []), [events.data])
  if (error && !run) return <NotBegun run={key} error={error} />
  if (!run) return slow ? <Skeleton lines={12} /> : null
  const advice = adviceOf(events.data?.events ?? [])
  const names = run.stages.map(stage => stage.name)
  const stage = query.get("stage") ?? run.stage ?? names.at(-1) ?? ""
  const step = query.has("step") ? Number(query.get("step")) : null
  const here = findings.filter(finding => finding.stage === stage || finding.stage === "")
  const shown = (
    <>
      <Summary run={run} />
      {run.trained && <TrainingResult trained={run.trained} />}
      {findings.length > 0 && (
        <Findings run={key} findings={findings} onStep={(at, of) => change({ stage: of, step: at }, { step: true })} />
      )}
      {advice.length > 0 && (
        <Panel title="Advice">
          <ul className="advice">
            {advice.map(({ steps, text }) => (
              <li key={text}>
                After {count(steps)} steps: <Safe text={text} />
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Charts
        run={run}
        stage={stage}
        step={step}
        findings={here}
        onStep={at => change({ stage, step: at }, { step: true })}
      />
      {run.kind === "evaluation" && run.rollouts > 0 && <EvaluationResult run={run} />}
      <Outcome run={run} />
      {step !== null && (
        <StepGroups
          run={key}
          stage={stage}
          step={step}
          onClose={() => change({ step: null })}
          onStep={at => change({ step: at })}
        />
      )}
      {run.rollouts === 0 && names.length === 0 && (
        <Empty title="Nothing is stored yet">Curves and rollouts appear here as they are stored.</Empty>
      )}
    </>
  )
  return (
    <div className="screen">
      <RunHead run={run} here="overview" />
      {gone && <ErrorLine error="This run was deleted while it was open: what you see is the last of it." />}
      {error && <ErrorLine error={error} />}
      {!run.problem && shown}
    </div>
  )
}

/** What a duration covers that is not the whole run's. */
const COVERED = { run: "so far", steps: "in steps so far", rollouts: "in rollouts", "": null }

function Summary({ run }: { run: RunData }) {
  const scored = run.coverage !== null && run.coverage < 1 ? "warn" : "plain"
  return (
    <dl className="figures">
      {run.versions.length === 0 && (
        <Figure name={run.kind === "training" ? "Reward, newest step" : "Reward, mean"} value={figure(run.reward)} />
      )}
      {run.versions.map(({ digest, reward, scored }) => (
        <Figure
          key={digest}
          name={`Reward, made by ${digest.slice(0, 8)}`}
          value={figure(reward)}
          note={`${count(scored)} scored`}
        />
      ))}
      {run.kind === "training" && run.step !== null && (
        <Figure name="Step" value={count(run.step)} note={run.of === null ? null : `of ${count(run.of)}`} />
      )}
      <Figure
        name="Rollouts"
        value={count(run.rollouts)}
        note={run.kind !== "evaluation" || run.of === null || run.of === run.rollouts ? null : `of ${count(run.of)}`}
      />
      <Figure name="Scored" value={percent(run.coverage)} tone={scored} />
      <Figure
        name="Errors"
        tone={run.errors ? "bad" : "plain"}
        value={
          run.errors ? (
            <Link to={to(["run", run.key, "rollouts"], { filter: 'status == "error"' })}>{count(run.errors)}</Link>
          ) : (
            "0"
          )
        }
      />
      <Figure
        name="Duration"
        value={duration(run.seconds)}
        note={run.finished && run.seconds_of === "run" ? null : COVERED[run.seconds_of]}
      />
    </dl>
  )
}

const FEW = 3

function Findings(props: { run: string; findings: Finding[]; onStep: (step: number, stage: string) => void }) {
  const [all, setAll] = useState(false)
  const newest = [...props.findings].reverse()
  const shown = all ? newest : newest.slice(0, FEW)
  const more = newest.length > FEW && (
    <button type="button" className="button small" onClick={() => setAll(!all)} aria-expanded={all}>
      {all ? "Show the newest" : "Show all"}
    </button>
  )
  return (
    <Panel actions={more} title={`Reward-hacking warnings (${props.findings.length})`} className="findings">
      <ul>
        {shown.map((finding, at) => (
          <li key={at}>
            <button type="button" className="finding-step" onClick={() => props.onStep(finding.step, finding.stage)}>
              step {count(finding.step)}
            </button>
            <b>
              <Safe text={finding.monitor} />
            </b>
            <span className="grow">
              <Safe text={finding.text} />
            </span>
            <span className="evidence">
              {finding.evidence.slice(0, 5).map(id => (
                <Link key={id} to={to(["run", props.run, "rollout", id])}>
                  {`#${id}`}
                </Link>
              ))}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}
