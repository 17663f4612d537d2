import { Empty } from "../parts/basics"

export default function Rollout(_props: { run: string; id: number }) {
  return <Empty title="On its way" />
}
