/** Grid games: the frames of a play, and going on from one of its moments. */

import { ask, path, send } from "./client"
import type { Session } from "./world"

export interface GridMoment {
  /** Its number in `frames`. */
  frame: number
  /** Levels that are solved. */
  level: number
  state: string
  /** What led here; null for the first moment, and for an answer without an action. */
  action: string | null
  /** Counted so far. */
  actions: number
}

export interface GridPlay {
  palette: string[]
  /** Rows of 64 pixels, a hexadecimal digit each. */
  rows: string[]
  /** Numbers of 64 rows each. */
  frames: number[][]
  moments: GridMoment[]
  /** Official numbers of the game's actions. */
  available: number[]
  levels: number
  /** Actions of the shortest solutions; null while the game is played. */
  optimum: number[] | null
}

export const sessionGrid = (id: string, signal?: AbortSignal): Promise<GridPlay> =>
  ask(path("/api/play/{}/grid", id), { signal })

export const rolloutGrid = (run: string, id: number, signal?: AbortSignal): Promise<GridPlay> =>
  ask(path("/api/runs/{}/rollouts/{}/grid", run, id), { signal })

export const branchSession = (id: string, n: number): Promise<{ session: Session }> =>
  send(path("/api/play/{}/grid/branch", id), { n })

export const branchRollout = (run: string, id: number, n: number): Promise<{ session: Session }> =>
  send(path("/api/runs/{}/rollouts/{}/grid/branch", run, id), { n })
