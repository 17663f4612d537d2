import { EXPORTED } from "../api/client"
import { Empty } from "../parts/basics"
import { Game } from "../play/Game"
import { Setup } from "../play/Setup"
import { go, to, useQuery } from "../router"

/** Screen 7: be the agent yourself. */
export default function Play() {
  const [query] = useQuery()
  const id = query.get("session")
  if (EXPORTED) {
    return (
      <Empty title="Nobody can play here">
        <p>This is a static export: games need the server of `wander studio`.</p>
      </Empty>
    )
  }
  if (id) return <Game key={id} id={id} />
  return <Setup onBegin={session => go(to(["play"], { session }))} />
}
