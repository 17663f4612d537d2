import { Empty } from "../parts/basics"

export default function Rollouts(_props: { run: string }) {
  return <Empty title="On its way" />
}
