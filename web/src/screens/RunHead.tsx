import { useState } from "react"
import { api, EXPORTED } from "../api/client"
import type { Control, Run, RunInfo } from "../api/types"
import { Copy, ErrorLine, Link } from "../parts/basics"
import { line } from "../parts/safe"
import { to } from "../router"
import { State } from "./Runs"

/** What every screen of one run begins with: its name, how it stands, its rooms, its controls; its key until more is known. */
export function RunHead({ run: known, here }: { run: Run | string; here: "overview" | "rollouts" | "config" }) {
  const key = typeof known === "string" ? known : known.key
  const run = typeof known === "string" ? null : known
  const about = [run?.env, run?.policy, run?.recipe].filter(Boolean).map(word => line(String(word), 80))
  return (
    <>
      <div className="head">
        <h1>{line(run?.name ?? key, 120)}</h1>
        {run && <State run={run} />}
        <span className="quiet grow">{about.join(" · ")}</span>
        {run && <Controls run={run} />}
        {run?.command && <Copy text={run.command} what="Copy command" />}
      </div>
      {run?.problem && <ErrorLine error={run.problem} />}
      <nav className="tabs" aria-label="Rooms of the run">
        <Link to={to(["run", key])} className={here === "overview" ? "here" : ""}>
          Overview
        </Link>
        <Link to={to(["run", key, "rollouts"])} className={here === "rollouts" ? "here" : ""}>
          Rollouts
        </Link>
        <Link to={to(["run", key, "config"])} className={here === "config" ? "here" : ""}>
          Config
        </Link>
      </nav>
    </>
  )
}

/** Pause, resume, stop: asked of the run itself, which answers when it can. */
function Controls({ run }: { run: RunInfo }) {
  const [asked, setAsked] = useState<Control | null>(null)
  const [error, setError] = useState("")
  const [sure, setSure] = useState(false)
  if (EXPORTED || !run.running || !run.controllable) return null
  const ask = async (what: Control) => {
    setAsked(what)
    setSure(false)
    setError("")
    try {
      await api.control(run.key, what)
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem))
    } finally {
      setAsked(null)
    }
  }
  const button = (what: Control, word: string, press = () => void ask(what)) => (
    <button type="button" className="button" disabled={asked !== null} onClick={press}>
      {asked === what ? "Sent\u2026" : word}
    </button>
  )
  return (
    <div className="actions">
      {run.paused ? button("resume", "Resume") : button("pause", "Pause")}
      {button("stop", sure ? "Really stop?" : "Stop", () => {
        if (sure) void ask("stop")
        else setSure(true)
      })}
      {error && (
        <span className="field-error" role="alert">
          {error}
        </span>
      )}
    </div>
  )
}
