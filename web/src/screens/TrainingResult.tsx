import type { Estimate, Trained } from "../api/types"
import { count, duration, figure, signed } from "../format"
import { Panel, Pill, type Tone } from "../parts/basics"
import { Safe } from "../parts/Text"
import { Interval, interval } from "./EvaluationResult"

const POLICIES = new Map([
  ["before", "Before training"],
  ["after", "After training"],
  ["best", "Best greedy evaluation"],
  ["teacher", "Teacher (scripted)"],
  ["random", "Random player"],
])
const VERDICTS = new Map<string, [Tone, string]>([
  ["better", ["good", "better"]],
  ["worse", ["bad", "worse"]],
  ["exploited", ["bad", "exploited"]],
  ["doubtful", ["bad", "doubtful"]],
  ["overfitted", ["bad", "overfitted"]],
  ["mixed", ["bad", "mixed"]],
  ["self-play", ["plain", "self-play"]],
])

/** What a finished training run came to: the sentence, before and after on the same tasks, players, advice. */
export function TrainingResult({ trained: { result, policy_sentence, advice } }: { trained: Trained }) {
  const [tone, word] = VERDICTS.get(result?.verdict ?? "") ?? ["plain", "no difference shown"]
  const drawn = result && (
    <span className="quiet pad-right">
      {count(result.tasks)} held-out tasks, {count(result.samples)} samples each, temperature {result.temperature};{" "}
      {duration(result.seconds)}
    </span>
  )
  return (
    <Panel title="Result" actions={drawn}>
      {result === null ? (
        <p className="quiet pad">Nothing was evaluated by sampling: there is no eval split, or result_samples is 0.</p>
      ) : (
        <>
          <p className="pad">
            <Pill tone={tone}>{word}</Pill> <Safe text={result.sentence} />
          </p>
          <Policies result={result} />
          {result.warnings && result.warnings.length > 0 && (
            <ul className="advice" aria-label="Warnings of the monitors">
              {result.warnings.map(one => (
                <li key={one}>
                  Warning at <Safe text={one} />
                </li>
              ))}
            </ul>
          )}
        </>
      )}
      {policy_sentence && (
        <p className="quiet pad">
          <Safe text={policy_sentence} />
        </p>
      )}
      {advice.length > 0 && (
        <ul className="advice" aria-label="Advice">
          {advice.map(one => (
            <li key={one}>
              <Safe text={one} />
            </li>
          ))}
        </ul>
      )}
    </Panel>
  )
}

function Policies({
  result: { metric, rows, difference, matches, truths },
}: {
  result: NonNullable<Trained["result"]>
}) {
  const names = Object.keys(truths ?? {})
  const all = rows.flatMap(({ reward }) => reward ?? [])
  const over = (one: Estimate) => `${count(one.count)} rollouts, ${count(one.clusters)} tasks`
  return (
    <table className="result">
      <thead>
        <tr>
          <th scope="col">Policy</th>
          <th scope="col">
            <Safe text={metric} />
          </th>
          <th scope="col">95% interval</th>
          {names.map(name => (
            <th key={name} scope="col">
              <Safe text={name} /> (held out)
            </th>
          ))}
          <th scope="col">Over</th>
          <th scope="col">Failed</th>
          <th scope="col" className="result-line">
            <span className="sr-only">Interval drawn</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ match, policy, step, reward, truths: own, failed }) => (
          <tr key={`${match ?? ""} ${policy}`}>
            <th scope="row">
              {match ? <Safe text={`${match}: `} /> : null}
              {POLICIES.get(policy) ?? <Safe text={policy} />}
              {step ? <span className="quiet">, step {count(step)}</span> : null}
            </th>
            <td>
              <b>{figure(reward?.value)}</b>
            </td>
            <td>{reward ? interval(reward) : "\u2013"}</td>
            {names.map(name => (
              <td key={name}>{figure(own?.[name]?.value)}</td>
            ))}
            <td className="quiet">{reward ? over(reward) : "nothing scored"}</td>
            <td className="quiet">{count(failed)}</td>
            <td className="result-line">{reward && <Interval one={reward} all={all} />}</td>
          </tr>
        ))}
        {Object.entries(difference ? { "": difference } : (matches ?? {})).map(([match, moved]) => (
          <tr key={match}>
            <th scope="row">
              {match ? <Safe text={`${match}: after less before, paired`} /> : "After less before, paired"}
            </th>
            <td>
              <b>{signed(moved.value)}</b>
            </td>
            <td>{interval(moved)}</td>
            {names.map(name => (
              <td key={name}>{match && !name.endsWith(match) ? null : signed(truths?.[name]?.value)}</td>
            ))}
            <td className="quiet">{count(moved.clusters)} tasks</td>
            <td />
            <td className="result-line" />
          </tr>
        ))}
      </tbody>
    </table>
  )
}
