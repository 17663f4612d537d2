import { Empty } from "../parts/basics"

export default function Group(_props: { run: string; stage: string; step: number; group: number }) {
  return <Empty title="On its way" />
}
