import { useMemo } from "react"
import type { GridPlay } from "../api/grid"
import { count } from "../format"
import { Panel } from "../parts/basics"
import { frameGraph } from "./frames"

const STEP = 26
const MOST = 400

interface GraphProps {
  play: GridPlay
  at: number
  onMoment: (at: number) => void
}

/** The frames of the level of this moment, by their distance from its first one. */
export function Graph({ play, at, onMoment }: GraphProps) {
  const level = play.moments[at]?.level ?? 0
  const here = play.moments[at]?.frame
  const graph = useMemo(() => frameGraph(play.moments, level, MOST), [play.moments, level])
  const places = useMemo(() => new Map(graph.nodes.map(node => [node.frame, node])), [graph])
  const [x, y] = [(column: number) => column * STEP + STEP / 2, (row: number) => row * STEP + STEP / 2]
  return (
    <Panel title={`Frames of level ${level + 1}`} className="grid-graph">
      <p className="quiet">
        {count(graph.nodes.length)} frames, {count(graph.edges.length)} ways. A column further right is an action
        further from the first frame.
      </p>
      <div className="grid-graph-room">
        {/* biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a drawing */}
        <svg
          width={Math.max(1, graph.columns) * STEP}
          height={Math.max(1, graph.rows) * STEP}
          role="group"
          aria-label="Graph of the frames"
        >
          {graph.edges.map(({ from, to, actions }) => {
            const [a, b] = [places.get(from), places.get(to)]
            if (!a || !b) return null
            const [ax, ay, bx, by] = [x(a.column), y(a.row), x(b.column), y(b.row)]
            const bend = a.column === b.column ? STEP / 2 : 0
            return (
              <path
                key={`${from} ${to}`}
                className={a.column < b.column ? undefined : "grid-back"}
                d={`M${ax},${ay} Q${(ax + bx) / 2 + bend},${(ay + by) / 2} ${bx},${by}`}
              >
                <title>{actions.slice(0, 8).join(", ")}</title>
              </path>
            )
          })}
          {graph.nodes.map(node => (
            // biome-ignore lint/a11y/useSemanticElements: a button cannot stand in a drawing
            <circle
              key={node.frame}
              cx={x(node.column)}
              cy={y(node.row)}
              r={node.frame === here ? 8 : 5}
              className={node.frame === here ? "grid-here" : undefined}
              role="button"
              tabIndex={0}
              aria-label={`Frame of moment ${node.moment}`}
              onClick={() => onMoment(node.moment)}
              onKeyDown={event => event.key === "Enter" && onMoment(node.moment)}
            />
          ))}
        </svg>
      </div>
    </Panel>
  )
}
