import { Empty } from "../parts/basics"

/** The world of a rollout; shown by the rollout's screen under `?view=world`. */
export default function World(_props: { run: string; id: number }) {
  return <Empty title="On its way" />
}
