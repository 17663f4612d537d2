import { EXPORTED, type Refused } from "../api/client"
import { Empty, ErrorLine, Link } from "../parts/basics"
import { line } from "../parts/safe"
import { to } from "../router"

/** A run that is not there: it may begin yet, and then its page opens by itself. */
export function NotBegun({ run, error }: { run: string; error: Refused }) {
  if (error.status !== 404 || EXPORTED) {
    return (
      <div className="screen">
        <ErrorLine error={error} />
        <Link to={to([])} className="link">
          All runs
        </Link>
      </div>
    )
  }
  return (
    <Empty title={`There is no run ${line(run, 80)} yet`}>
      <p>If it is about to begin, this page turns into it as soon as it does.</p>
      <p>
        <Link to={to([])} className="link">
          All runs
        </Link>
      </p>
    </Empty>
  )
}
