import { Empty } from "../parts/basics"

export default function Play() {
  return <Empty title="On its way" />
}
