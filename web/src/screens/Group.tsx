import { useEffect, useRef, useState } from "react"
import { api } from "../api/client"
import { useData } from "../api/data"
import { mainSeat } from "../api/seat"
import type { GroupOpened } from "../api/types"
import { count, figure } from "../format"
import { useKeys } from "../keys"
import { ErrorLine, Figure, Link, Panel, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { Text } from "../parts/Text"
import { go, to, useQuery } from "../router"
import { Difference } from "./Difference"
import { plain } from "./ScoreCard"
import { actions, Sibling } from "./Sibling"

interface GroupProps {
  run: string
  stage: string
  step: number
  group: number
}

/** Screen 4: the siblings of one task, side by side. */
export default function Group({ run, stage, step, group }: GroupProps) {
  const [query, change] = useQuery()
  const name = `group ${run} ${stage} ${step} ${group}`
  const { data, error, slow } = useData(name, signal => api.group(run, stage, step, group, signal))
  const [selected, setSelected] = useState(0)
  const columns = useRef<HTMLDivElement>(null)
  const picked = (query.get("diff") ?? "").split(",").filter(Boolean).map(Number)
  const rollouts = data?.rollouts ?? []
  const pick = (at: number) => {
    const next = picked.includes(at) ? picked.filter(one => one !== at) : [...picked.slice(-1), at]
    change({ diff: next.join(",") })
  }
  const here = rollouts[selected]
  const address = (id: number) => to(["run", run, "rollout", id])
  const move = (by: number) => setSelected(old => Math.max(0, Math.min(rollouts.length - 1, old + by)))
  const near = (by: number) => group + by >= 0 && go(to(["run", run, "group", stage, step, group + by]))
  useEffect(() => {
    columns.current?.children[selected]?.scrollIntoView({ block: "nearest", inline: "nearest" })
  }, [selected])
  useKeys([
    { keys: ["j", "ArrowRight"], what: "Next rollout", run: () => move(1) },
    { keys: ["k", "ArrowLeft"], what: "Previous rollout", run: () => move(-1) },
    { keys: ["Enter"], what: "Open the rollout", run: () => here && go(address(here.row.id)) },
    { keys: ["d"], what: "Take it into the difference of two", run: () => here && pick(selected) },
    { keys: ["]", "n"], what: "Next group of the step", run: () => near(1) },
    { keys: ["[", "p"], what: "Group before", run: () => near(-1) },
    { keys: ["Escape"], what: "Back to the step", run: () => go(to(["run", run], { stage, step })) },
  ])
  if (error && !data) {
    return (
      <ErrorLine error={error}>
        <Link to={to(["run", run])} className="link">
          The run
        </Link>
      </ErrorLine>
    )
  }
  if (!data) return slow ? <Skeleton lines={14} /> : null
  const most = Math.max(...rollouts.map(one => Math.abs(mainSeat(one)?.advantage ?? 0)), 1e-9)
  const [left, right] = picked.map(at => rollouts[at])
  return (
    <div className="screen">
      <div className="head">
        <h1>{line(data.task.id, 120)}</h1>
        <span className="quiet grow">
          {line(stage, 40)},{" "}
          <Link to={to(["run", run], { stage, step })} className="link">
            step {count(step)}
          </Link>
          , group {count(group)}
        </span>
        <div className="actions">
          <button
            type="button"
            className="button"
            onClick={() => near(-1)}
            disabled={group === 0}
            aria-label="Group before"
          >
            {"\u2190"}
          </button>
          <button type="button" className="button" onClick={() => near(1)} aria-label="Next group">
            {"\u2192"}
          </button>
        </div>
      </div>
      <Summary data={data} />
      {left && right && (
        <Difference
          left={actions(left)}
          right={actions(right)}
          names={[`Sample ${left.row.sample_index}`, `Sample ${right.row.sample_index}`]}
          onClose={() => change({ diff: null })}
        />
      )}
      <div className="siblings" ref={columns}>
        {rollouts.map((opened, at) => (
          <Sibling
            key={opened.row.id}
            title={`Sample ${opened.row.sample_index}`}
            address={address(opened.row.id)}
            parting={data.diverge[at] ?? null}
            selected={at === selected}
            picked={picked.includes(at)}
            onPick={() => pick(at)}
            {...{ opened, most }}
          />
        ))}
      </div>
    </div>
  )
}

function Summary({ data: { task, rollouts, total } }: { data: GroupOpened }) {
  const rewards = rollouts.flatMap(one => {
    const score = mainSeat(one)?.score
    return score ? [score.reward] : []
  })
  const mean = rewards.length ? rewards.reduce((sum, one) => sum + one, 0) / rewards.length : null
  const [low, high] = [Math.min(...rewards), Math.max(...rewards)]
  return (
    <>
      <dl className="figures">
        <Figure
          name="Rollouts"
          value={count(total)}
          note={rollouts.length < total ? `the first ${count(rollouts.length)} are shown and counted here` : null}
        />
        <Figure
          name="Scored"
          value={count(rewards.length)}
          tone={rewards.length < rollouts.length ? "warn" : "plain"}
        />
        <Figure name="Mean reward" value={figure(mean)} />
        {rewards.length > 0 && <Figure name="Lowest to highest" value={`${figure(low)} to ${figure(high)}`} />}
        <Figure
          name="Learning signal"
          value={rewards.length > 0 && low !== high ? "yes" : "no"}
          note={low === high ? "all rewards are alike" : null}
        />
      </dl>
      {task.answer !== null && (
        <Panel title="Target">
          <Text text={plain(task.answer)} className="code pad" />
        </Panel>
      )}
    </>
  )
}
