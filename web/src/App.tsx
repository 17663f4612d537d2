import { Component, lazy, type ReactNode, Suspense } from "react"
import { Empty, ErrorLine, Link, Skeleton } from "./parts/basics"
import { type Place, to, usePlace } from "./router"
import Rollout from "./screens/Rollout"
import Rollouts from "./screens/Rollouts"
import { Runs } from "./screens/Runs"
import { Shell } from "./Shell"

const Run = lazy(() => import("./screens/Run"))
const Group = lazy(() => import("./screens/Group"))
const Config = lazy(() => import("./screens/Config"))
const Compare = lazy(() => import("./screens/Compare"))
const Play = lazy(() => import("./screens/Play"))
const Drafts = lazy(() => import("./screens/Drafts"))

/** The screen of a place; its parts are checked here, so that a screen gets what it needs. */
function screen({ parts }: Place): ReactNode {
  const [root, key, what, first, second, third] = parts
  if (root === undefined) return <Runs />
  if (root === "play") return <Play />
  if (root === "compare") return <Compare />
  if (root === "drafts") return <Drafts folder={key} name={what} />
  if (root !== "run" || key === undefined) return <Nowhere />
  if (what === undefined) return <Run run={key} />
  if (what === "config") return <Config run={key} />
  if (what === "rollouts") return <Rollouts run={key} />
  if (what === "rollout" && Number(first) > 0) return <Rollout run={key} id={Number(first)} />
  if (what === "group" && first && Number(second) >= 0 && Number(third) >= 0) {
    return <Group run={key} stage={first} step={Number(second)} group={Number(third)} />
  }
  return <Nowhere />
}

function Nowhere() {
  return (
    <Empty title="There is no such page">
      <p>
        The address leads nowhere. <Link to={to([])}>All runs</Link>
      </p>
    </Empty>
  )
}

/** A fault of the page itself takes one screen with it, not the studio. */
class Guard extends Component<{ place: string; children: ReactNode }, { fault: string; place: string }> {
  state = { fault: "", place: this.props.place }

  static getDerivedStateFromError(error: unknown) {
    return { fault: error instanceof Error ? error.message : String(error) }
  }

  static getDerivedStateFromProps(props: { place: string }, state: { fault: string; place: string }) {
    return props.place === state.place ? null : { fault: "", place: props.place }
  }

  render() {
    if (!this.state.fault) return this.props.children
    return <ErrorLine error={`This screen failed: ${this.state.fault}. Reload the page; the run is untouched.`} />
  }
}

export function App() {
  const place = usePlace()
  return (
    <Shell place={place}>
      <Guard place={place.parts.join("/")}>
        <Suspense fallback={<Skeleton />}>{screen(place)}</Suspense>
      </Guard>
    </Shell>
  )
}
