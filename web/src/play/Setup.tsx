import { type FormEvent, useState } from "react"
import { Refused } from "../api/client"
import { useData } from "../api/data"
import * as worlds from "../api/world"
import type { Playable } from "../api/world"
import { Choose, Empty, ErrorLine, Link, Panel, Pill, Skeleton } from "../parts/basics"
import { line } from "../parts/safe"
import { to, useQuery } from "../router"

/** What is to be played: an environment, a task of it, a seed, and against whom. */
export function Setup({ onBegin }: { onBegin: (id: string) => void }) {
  const [query, change] = useQuery()
  const offer = useData("offer", signal => worlds.offer(signal))
  if (offer.error && !offer.data) return <ErrorLine error={offer.error} />
  if (!offer.data) return offer.slow ? <Skeleton lines={10} /> : null
  const { environments, sessions } = offer.data
  const words = (query.get("q") ?? "").toLowerCase()
  const found = environments.filter(one => `${one.name} ${one.about ?? ""}`.toLowerCase().includes(words))
  const here = environments.find(({ name }) => name === query.get("env"))
  return (
    <div className="screen">
      <div className="head">
        <h1>Play</h1>
        <input
          data-filter
          className="field"
          type="search"
          placeholder="Find an environment"
          aria-label="Find an environment"
          value={query.get("q") ?? ""}
          onChange={event => change({ q: event.target.value })}
        />
      </div>
      <div className="play-setup">
        <Panel title="Environments">
          {found.length === 0 && <Empty title="No environment has all these words" />}
          <ul className="play-list">
            {found.map(one => (
              <li key={one.name}>
                <button
                  type="button"
                  aria-pressed={one.name === here?.name}
                  disabled={one.problem !== undefined}
                  onClick={() => change({ env: one.name, task: null, opponent: null, seat: null }, { step: true })}
                >
                  <b>{line(one.name, 60)}</b>
                  <span className="play-marks">
                    {one.world && <Pill tone="accent">world</Pill>}
                    {one.opponent !== "none" && <Pill>{one.opponent === "needed" ? "for two" : "one or two"}</Pill>}
                  </span>
                  <span className={one.problem ? "tone-bad" : "quiet"}>
                    {line(one.problem ?? (one.about ?? "").replaceAll("`", ""), 160)}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </Panel>
        <div className="play-choice">
          {here ? (
            <Choice
              key={here.name}
              env={here}
              checkpoints={offer.data.checkpoints}
              consent={offer.data.consent}
              onBegin={onBegin}
            />
          ) : (
            <Empty title="Choose an environment">
              <p>You sit where the model sits, and are scored and stored like one.</p>
            </Empty>
          )}
          {sessions.length > 0 && (
            <Panel title="Games of this studio">
              <ul className="play-sessions">
                {sessions.map(one => (
                  <li key={one.id}>
                    <Link to={to(["play"], { session: one.id })} className="link">
                      {line(one.env, 40)}
                    </Link>{" "}
                    <span className="quiet">
                      {line(one.task, 60)} {"\u00b7"} {one.over ? "over" : "under way"}
                    </span>
                  </li>
                ))}
              </ul>
            </Panel>
          )}
        </div>
      </div>
    </div>
  )
}

interface ChoiceProps {
  env: Playable
  checkpoints: worlds.Offer["checkpoints"]
  consent: string
  onBegin: (id: string) => void
}

function Choice({ env, checkpoints, consent, onBegin }: ChoiceProps) {
  const [query, change] = useQuery()
  const [error, setError] = useState<Refused | null>(null)
  const [busy, setBusy] = useState(false)
  const [agreed, setAgreed] = useState(false)
  const [person, setPerson] = useState("")
  const settings = query.get("with") ?? ""
  const split = query.get("split") ?? "train"
  const name = settings ? `${env.name},${settings}` : env.name
  const listed = useData(`tasks ${name} ${split}`, signal => worlds.tasks(name, split, 0, signal))
  const opponent = query.get("opponent") ?? ""
  const task = query.get("task") ?? ""
  const begin = async (event: FormEvent) => {
    event.preventDefault()
    setBusy(true)
    setError(null)
    const at = /^\d+$/.test(task) ? Number(task) : task
    const [seed, seat] = [Number(query.get("seed") ?? 0), query.get("seat") ?? ""]
    try {
      onBegin(
        (
          await worlds.begin({
            env: name,
            split,
            task: at === "" ? 0 : at,
            seed,
            opponent,
            seat,
            person: agreed ? person : "",
          })
        ).id,
      )
    } catch (refused) {
      setError(refused instanceof Refused ? refused : new Refused(String(refused), 0))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Panel title={line(name, 80)}>
      <form className="play-form" onSubmit={begin}>
        <Choose
          label="Split"
          value={split}
          onChoose={next => change({ split: next, task: null })}
          choices={["train", "eval"].map(value => ({ value, label: value }))}
        />
        <label>
          <span>Task: its number or its id</span>
          <input
            className="field"
            list="play-tasks"
            value={task}
            placeholder="0"
            onChange={event => change({ task: event.target.value })}
          />
        </label>
        <datalist id="play-tasks">
          {listed.data?.tasks.map(one => (
            <option key={one.index} value={one.id} label={line(one.begins, 100)} />
          ))}
        </datalist>
        <label>
          <span>Seed</span>
          <input
            className="field"
            type="number"
            value={query.get("seed") ?? "0"}
            onChange={event => change({ seed: event.target.value })}
          />
        </label>
        {env.settings.length > 0 && (
          <label>
            <span>Settings, as name=value: {line(env.settings.map(one => one.name).join(", "), 120)}</span>
            <input
              className="field"
              value={settings}
              placeholder="as they are"
              onChange={event => change({ with: event.target.value, task: null })}
            />
          </label>
        )}
        {env.opponent !== "none" && (
          <label>
            <span>Against</span>
            <select className="field" value={opponent} onChange={event => change({ opponent: event.target.value })}>
              <option value="">{env.opponent === "needed" ? "choose" : "the environment itself"}</option>
              {env.players.map(one => (
                <option key={one}>{one}</option>
              ))}
              {checkpoints.map(one => (
                <option key={one.path} value={one.path}>
                  {line(one.name, 60)}
                </option>
              ))}
            </select>
          </label>
        )}
        {env.seats.length > 1 && (
          <Choose
            label="Your seat"
            value={query.get("seat") ?? env.seats[0] ?? ""}
            onChoose={next => change({ seat: next })}
            choices={env.seats.map(value => ({ value, label: line(value, 30) }))}
          />
        )}
        {env.name === "grids" && (
          <fieldset className="play-consent">
            <legend>First play</legend>
            <p className="quiet">{line(consent, 800)}</p>
            <label className="play-agree">
              <input type="checkbox" checked={agreed} onChange={event => setAgreed(event.target.checked)} />
              <span>I have not played this game before, and I agree</span>
            </label>
            {agreed && (
              <label>
                <span>Your name in the record</span>
                <input
                  className="field"
                  required
                  maxLength={40}
                  value={person}
                  onChange={event => setPerson(event.target.value)}
                />
              </label>
            )}
          </fieldset>
        )}
        <button type="submit" className="button primary" disabled={busy || (env.opponent === "needed" && !opponent)}>
          {busy ? "Setting out" : "Begin"}
        </button>
        {error && <ErrorLine error={error} />}
      </form>
      {listed.error && <ErrorLine error={listed.error} />}
      {listed.data && (
        <ul className="play-tasks">
          {listed.data.tasks.map(one => (
            <li key={one.index}>
              <button
                type="button"
                aria-pressed={task === one.id || task === String(one.index)}
                onClick={() => change({ task: one.id })}
              >
                <span className="mono">{line(one.id, 60)}</span>
                <span className="quiet">{line(one.begins, 120)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  )
}
