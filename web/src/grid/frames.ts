/** The graph of the frames of a level: what each action made of each frame, laid out by distance from the first. */

import type { GridMoment } from "../api/grid"

export interface GraphNode {
  frame: number
  /** The first moment that shows it. */
  moment: number
  column: number
  row: number
}

export interface GraphEdge {
  from: number
  to: number
  actions: string[]
}

export interface FrameGraph {
  nodes: GraphNode[]
  edges: GraphEdge[]
  columns: number
  rows: number
}

/** The frames of one level and the actions between them; resets are left out, they all lead to the first frame. */
export function frameGraph(moments: GridMoment[], level: number, most = Number.POSITIVE_INFINITY): FrameGraph {
  const first = new Map<number, number>()
  const edges = new Map<string, GraphEdge>()
  moments.forEach((now, at) => {
    if (now.level !== level || (!first.has(now.frame) && first.size >= most)) return
    if (!first.has(now.frame)) first.set(now.frame, at)
    const before = moments[at - 1]
    if (!before || before.level !== level || now.action === null || now.action === "reset") return
    if (before.frame === now.frame || !first.has(before.frame)) return
    const key = `${before.frame} ${now.frame}`
    const edge = edges.get(key) ?? { from: before.frame, to: now.frame, actions: [] }
    if (!edge.actions.includes(now.action)) edge.actions.push(now.action)
    edges.set(key, edge)
  })
  const columns = distances([...first.keys()], [...edges.values()])
  const filled: number[] = []
  const nodes = [...first].map(([frame, moment]) => {
    const column = columns.get(frame) ?? 0
    const row = filled[column] ?? 0
    filled[column] = row + 1
    return { frame, moment, column, row }
  })
  return { nodes, edges: [...edges.values()], columns: filled.length, rows: Math.max(0, ...filled.map(n => n ?? 0)) }
}

function distances(frames: number[], edges: GraphEdge[]): Map<number, number> {
  const out = new Map<number, number>()
  const next = new Map<number, number[]>()
  for (const { from, to } of edges) next.set(from, [...(next.get(from) ?? []), to])
  for (const start of frames) {
    if (out.has(start)) continue
    out.set(start, 0)
    const line = [start]
    for (let frame = line.shift(); frame !== undefined; frame = line.shift()) {
      for (const one of next.get(frame) ?? []) {
        if (out.has(one)) continue
        out.set(one, (out.get(frame) ?? 0) + 1)
        line.push(one)
      }
    }
  }
  return out
}
