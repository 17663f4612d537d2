import { Empty } from "../parts/basics"

export default function Run(_props: { run: string }) {
  return <Empty title="On its way" />
}
