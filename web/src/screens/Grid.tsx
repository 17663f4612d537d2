import { branchRollout, rolloutGrid } from "../api/grid"
import { useData } from "../api/data"
import { Film } from "../grid/Film"
import { ErrorLine, Skeleton } from "../parts/basics"
import { useQuery } from "../router"

/** The game of a rollout: every frame, and its graph. */
export default function Grid({ run, id }: { run: string; id: number }) {
  const [query, change] = useQuery()
  const { data, error, slow } = useData(`grid ${run} ${id}`, signal => rolloutGrid(run, id, signal))
  if (error && !data) return <ErrorLine error={error} />
  if (!data) return slow ? <Skeleton lines={12} /> : null
  const asked = Number(query.get("n") ?? data.moments.length - 1) || 0
  const at = Math.max(0, Math.min(data.moments.length - 1, asked))
  return <Film play={data} at={at} onMoment={n => change({ n })} onBranch={n => branchRollout(run, id, n)} />
}
