import { type KeyboardEvent, type ReactNode, type UIEvent, useEffect, useLayoutEffect, useRef, useState } from "react"
import { go } from "../router"

export interface Column<T> {
  key: string
  label: string
  /** A size of a CSS grid: "96px", "minmax(120px, 2fr)". */
  width: string
  align?: "right"
  sortable?: boolean
  title?: string
  cell: (row: T) => ReactNode
}

interface TableProps<T> {
  label: string
  columns: Column<T>[]
  total: number
  /** The row at an index; undefined while it is on its way. */
  row: (index: number) => T | undefined
  rowKey: (row: T) => string | number
  /** The address a row opens. */
  open?: (row: T, index: number) => string
  selected: number
  onSelect: (index: number) => void
  sort?: string
  onSort?: (sort: string) => void
  /** First and last index in sight, whenever they change. */
  onSight?: (first: number, last: number) => void
  tone?: (row: T) => string | undefined
  rowHeight?: number
  /** A row that says one thing instead of its cells from a column on. */
  instead?: (row: T) => { from: number; node: ReactNode } | null
  /** True while other rows than these are on their way. */
  busy?: boolean
}

/** Browsers stop growing an element at 33 million pixels; above this height rows are mapped onto it. */
const TALLEST = 16_000_000
const BEYOND = 8

/** Where things are: a window of rows over any number of them. */
function useWindow(total: number, rowHeight: number) {
  const box = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const [height, setHeight] = useState(600)
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const measure = () => setHeight(element.clientHeight)
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    measure()
    return () => observer.disconnect()
  }, [])
  const tall = Math.min(total * rowHeight, TALLEST)
  const seen = Math.max(1, Math.floor((height - rowHeight) / rowHeight))
  const room = Math.max(1, tall - seen * rowHeight)
  const scale = Math.max(0, total - seen) / room
  const first = tall < TALLEST ? top / rowHeight : top * scale
  const scrollTo = (index: number) => {
    if (box.current) box.current.scrollTop = tall < TALLEST ? index * rowHeight : index / scale
  }
  return { box, top, setTop, tall, seen, first, scrollTo }
}

/** A table of any length: only what is in sight is drawn, `j` and `k` move, Enter opens. */
export function Table<T>(props: TableProps<T>) {
  const { columns, total, selected, onSight, rowHeight = 32 } = props
  const { box, top, setTop, tall, seen, first, scrollTo } = useWindow(total, rowHeight)
  const from = Math.max(0, Math.floor(first) - BEYOND)
  const until = Math.min(total, Math.ceil(first) + seen + BEYOND)
  // biome-ignore lint/correctness/useExhaustiveDependencies: told when the window moves, not when the teller changes
  useEffect(() => void onSight?.(from, until), [from, until, total])
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a newly selected row is brought into sight
  useLayoutEffect(() => {
    if (selected < 0) return
    if (selected < first) scrollTo(selected)
    else if (selected >= first + seen) scrollTo(selected - seen + 1)
  }, [selected])
  const grid = columns.map(column => column.width).join(" ")
  const least = columns.reduce(
    (sum, column) => sum + Number.parseInt(/\d+(?=px)/.exec(column.width)?.[0] ?? "0", 10),
    0,
  )
  const size = { "--grid": grid, "--least": `${least}px`, "--row": `${rowHeight}px`, maxHeight: tall + rowHeight + 3 }
  const indexes = Array.from({ length: Math.max(0, until - from) }, (_, n) => from + n)
  return (
    <div
      className={props.busy ? "table busy" : "table"}
      aria-busy={props.busy}
      role="grid"
      aria-label={props.label}
      aria-rowcount={total + 1}
      ref={box}
      tabIndex={0}
      onScroll={(event: UIEvent<HTMLDivElement>) => setTop(event.currentTarget.scrollTop)}
      style={size as React.CSSProperties}
    >
      <Head {...props} />
      <div className="table-body" style={{ height: tall }} role="rowgroup">
        {indexes.map(index => {
          const y = tall < TALLEST ? index * rowHeight : top + (index - first) * rowHeight
          return <Line key={index} index={index} y={y} table={props} />
        })}
      </div>
    </div>
  )
}

function Head<T>({ columns, sort = "", onSort }: TableProps<T>) {
  const by = sort.replace(/^-/, "")
  const turn = (key: string) => onSort?.(by === key ? (sort.startsWith("-") ? key : `-${key}`) : `-${key}`)
  return (
    <div className="table-head" role="rowgroup">
      <div className="table-line" role="row" aria-rowindex={1}>
        {columns.map(({ key, label, align, sortable, title }) => {
          const order = by !== key ? undefined : sort.startsWith("-") ? "descending" : "ascending"
          return (
            <span key={key} role="columnheader" className={align} aria-sort={order} title={title} tabIndex={-1}>
              {sortable && onSort ? (
                <button
                  type="button"
                  onClick={event => {
                    turn(key)
                    if (event.detail > 0) event.currentTarget.blur()
                    else event.currentTarget.closest<HTMLElement>("[role=grid]")?.focus() // Enter is for the rows again
                  }}
                >
                  {label}
                  <i aria-hidden="true">{order === "descending" ? "\u2193" : order ? "\u2191" : ""}</i>
                </button>
              ) : (
                label
              )}
            </span>
          )
        })}
      </div>
    </div>
  )
}

function Line<T>({ index, y, table }: { index: number; y: number; table: TableProps<T> }) {
  const { columns, selected, onSelect, open, tone } = table
  const row = table.row(index)
  const instead = row === undefined ? null : (table.instead?.(row) ?? null)
  const address = row === undefined ? undefined : open?.(row, index)
  const classes = ["table-line", index === selected && "selected", row !== undefined && tone?.(row), address && "opens"]
  const enter = (event: KeyboardEvent) => event.key === "Enter" && address && go(address)
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      aria-selected={index === selected}
      tabIndex={-1}
      style={{ top: y }}
      className={classes.filter(Boolean).join(" ")}
      onKeyDown={enter}
      onClick={event => {
        onSelect(index)
        if (address && !(event.target as HTMLElement).closest("a, button, input")) go(address)
      }}
    >
      {columns.slice(0, instead?.from).map(({ key, align, cell }) => (
        <span key={key} role="gridcell" className={align} tabIndex={-1}>
          {row === undefined ? <i className="ghost" /> : cell(row)}
        </span>
      ))}
      {instead && (
        <span role="gridcell" style={{ gridColumn: `${instead.from + 1} / -1` }} tabIndex={-1}>
          {instead.node}
        </span>
      )}
    </div>
  )
}
