import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react"

const SIZE = 8

interface ChunksProps {
  count: number
  /** Pixels one item takes before it was drawn. */
  estimate: number
  /** The item to bring into sight; a change scrolls there. */
  focus: number | null
  render: (index: number) => ReactNode
}

/** A long list of items of any height: what is far out of sight is only as high as it was. */
export function Chunks({ count, estimate, focus, render }: ChunksProps) {
  const box = useRef<HTMLDivElement>(null)
  const shown = useRef<number | null>(null)
  useLayoutEffect(() => {
    if (focus === null || focus === shown.current) return
    shown.current = focus
    const find = () => box.current?.querySelector(`[data-item="${focus}"]`)
    const chunk = box.current?.children[Math.floor(focus / SIZE)]
    if (!find()) chunk?.scrollIntoView({ block: "start" })
    let tries = 20
    const settle = () => {
      const item = find()
      if (item) item.scrollIntoView({ block: "start" })
      else if (tries-- > 0) requestAnimationFrame(settle)
    }
    settle()
  }, [focus])
  return (
    <div ref={box} className="chunks">
      {Array.from({ length: Math.ceil(count / SIZE) }, (_, n) => (
        <Chunk key={n} first={n * SIZE} until={Math.min(count, (n + 1) * SIZE)} estimate={estimate} render={render} />
      ))}
    </div>
  )
}

interface ChunkProps {
  first: number
  until: number
  estimate: number
  render: (index: number) => ReactNode
}

function Chunk({ first, until, estimate, render }: ChunkProps) {
  const box = useRef<HTMLDivElement>(null)
  const [near, setNear] = useState(first === 0)
  const height = useRef((until - first) * estimate)
  useEffect(() => {
    const element = box.current
    if (!element) return
    const observer = new IntersectionObserver(
      ([seen]) => {
        if (!seen) return
        if (!seen.isIntersecting && seen.boundingClientRect.height > 0) height.current = seen.boundingClientRect.height
        setNear(seen.isIntersecting)
      },
      { root: document.getElementById("main"), rootMargin: "1200px 0px" },
    )
    observer.observe(element)
    return () => observer.disconnect()
  }, [])
  return (
    <div ref={box} style={near ? undefined : { height: height.current }}>
      {near &&
        Array.from({ length: until - first }, (_, n) => (
          <div key={first + n} data-item={first + n}>
            {render(first + n)}
          </div>
        ))}
    </div>
  )
}
