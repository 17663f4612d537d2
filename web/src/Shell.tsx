import { type FormEvent, type ReactNode, useEffect, useState } from "react"
import { EXPORTED } from "./api/client"
import { useNews, useStream } from "./api/stream"
import { leave, useKeys } from "./keys"
import { Link } from "./parts/basics"
import { Help } from "./parts/Help"
import { line } from "./parts/safe"
import { go, type Place, to } from "./router"

const NAMES = new Map([
  ["rollouts", "Rollouts"],
  ["group", "Group"],
  ["rollout", "Rollout"],
  ["config", "Config"],
  ["compare", "Compare"],
  ["play", "Play"],
  ["drafts", "Drafts"],
])

/** What is around every screen: where we are, whether news come in, the look, the keyboard. */
export function Shell({ place, children }: { place: Place; children: ReactNode }) {
  const [help, setHelp] = useState(false)
  const { link } = useNews()
  const [root, key, what, ...rest] = place.parts
  const run = root === "run" ? (key ?? null) : null
  useStream(run)
  useEffect(() => {
    const title = [
      what && [NAMES.get(what) ?? line(what, 40), ...rest].join(" "),
      run,
      run === null && root && NAMES.get(root),
    ]
    document.title = [...title.filter(Boolean), "Wanderlust studio"].join(" · ")
  })
  useKeys([
    { keys: ["?"], what: "This list", run: () => setHelp(true) },
    { keys: ["g h"], what: "All runs", run: () => go(to([])) },
    { keys: ["g p"], what: EXPORTED ? "" : "Play", run: () => go(to(["play"])) },
    { keys: ["g c"], what: EXPORTED ? "" : "Compare", run: () => go(to(["compare"])) },
    { keys: ["g d"], what: EXPORTED ? "" : "Drafts", run: () => go(to(["drafts"])) },
    { keys: ["g r"], what: run ? "This run" : "", run: () => run && go(to(["run", run])) },
    { keys: ["g t"], what: run ? "This run's rollouts" : "", run: () => run && go(to(["run", run, "rollouts"])) },
    { keys: ["/"], what: "To the filter", run: () => document.querySelector<HTMLElement>("[data-filter]")?.focus() },
    { keys: ["t"], what: "Light, dark or the system's look", run: () => theme() },
  ])
  return (
    <>
      <button type="button" className="skip" onClick={() => document.getElementById("main")?.focus()}>
        To the content
      </button>
      <header className="bar">
        <Link to={to([])} className="brand" label="Wanderlust studio: all runs">
          <Mark />
          <span>Wanderlust</span>
        </Link>
        <Crumbs place={place} />
        <nav className="bar-nav" aria-label="Studio">
          <Link to={to([])} className={root === undefined ? "here" : ""}>
            Runs
          </Link>
          {!EXPORTED && (
            <Link to={to(["compare"])} className={root === "compare" ? "here" : ""}>
              Compare
            </Link>
          )}
          {!EXPORTED && (
            <Link to={to(["play"])} className={root === "play" ? "here" : ""}>
              Play
            </Link>
          )}
          {!EXPORTED && (
            <Link to={to(["drafts"])} className={root === "drafts" ? "here" : ""}>
              Drafts
            </Link>
          )}
        </nav>
        <Live />
        <ThemeSwitch />
        <button
          type="button"
          className="icon-button"
          onClick={() => setHelp(true)}
          aria-label="Keyboard"
          title="Keyboard (?)"
        >
          ?
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        {link === "locked" && <TokenField />}
        {children}
      </main>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  )
}

/** The server has another token than this tab: ask for it, and come back to this address. */
function TokenField() {
  const [token, setToken] = useState("")
  const enter = (event: FormEvent) => {
    event.preventDefault()
    const address = new URL(window.location.href)
    address.searchParams.set("token", token.trim())
    window.location.assign(address)
  }
  return (
    <form className="token-field panel" onSubmit={enter}>
      <label htmlFor="token">
        The studio wants its token: the part after <code>token=</code> in the address that <code>wander studio</code>{" "}
        printed.
      </label>
      <input
        id="token"
        className="field"
        type="password"
        autoComplete="current-password"
        required
        value={token}
        onChange={event => setToken(event.target.value)}
        onKeyDown={leave}
      />
      <button type="submit" className="button primary">
        Open
      </button>
    </form>
  )
}

function Mark() {
  return (
    <svg viewBox="0 0 32 24" width="32" height="24" aria-hidden="true">
      <path d="M2 20c5-1 6.500-16 11-16s4.500 8 8 8 3.500-4 5-4 2.500 8 4 12" />
      <path d="M8 20c2.500-1 3-9 5-9s2.200 5.500 5.500 6.500" />
    </svg>
  )
}

function Crumbs({ place: { parts } }: { place: Place }) {
  const [root, key, what, ...rest] = parts
  if (root !== "run" || !key) return <nav className="crumbs" aria-label="Place" />
  return (
    <nav className="crumbs" aria-label="Place">
      <Link to={to(["run", key])} title={key}>
        {line(key, 60)}
      </Link>
      {(what === "rollout" || what === "group") && (
        <Link to={to(["run", key, "rollouts"])} className="crumb-middle">
          Rollouts
        </Link>
      )}
      {what && (
        <span aria-current="page">
          {NAMES.get(what) ?? line(what, 40)} {rest.map(part => line(part, 40)).join(" / ")}
        </span>
      )}
    </nav>
  )
}

const LINKS = {
  off: ["exported", "A static export: nothing here changes"],
  waiting: ["connecting", "Waiting for the server"],
  live: ["live", "News come in as they are stored"],
  locked: ["no access", "The server wants its token"],
  lost: ["no server", "The server does not answer: what you see may be old"],
} as const

function Live() {
  const { link } = useNews()
  const [word, title] = LINKS[link]
  return (
    <span className={`live live-${link}`} title={title} role="status">
      <i aria-hidden="true" />
      {word}
    </span>
  )
}

const LOOKS = ["system", "light", "dark"]
const look = (): string => document.documentElement.dataset.theme ?? "system"

/** The next look in turn; kept in this browser. Charts hear of it by the event. */
function theme(): void {
  const next = LOOKS[(LOOKS.indexOf(look()) + 1) % LOOKS.length] ?? "system"
  if (next === "system") delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = next
  localStorage.setItem("studio-theme", next)
  window.dispatchEvent(new Event("studio-theme"))
}

function ThemeSwitch() {
  const [now, setNow] = useState(look)
  useEffect(() => {
    const changed = () => setNow(look())
    window.addEventListener("studio-theme", changed)
    return () => window.removeEventListener("studio-theme", changed)
  }, [])
  return (
    <button
      type="button"
      className="icon-button"
      onClick={theme}
      aria-label={`Look: ${now}`}
      title={`Look: ${now} (t)`}
    >
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" className={`look-${now}`}>
        <circle cx="8" cy="8" r="6" />
        <path d="M8 2a6 6 0 0 1 0 12z" />
      </svg>
    </button>
  )
}
