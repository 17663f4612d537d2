import { Empty } from "../parts/basics"

export default function Compare() {
  return <Empty title="On its way" />
}
