import { type PointerEvent, useEffect, useRef } from "react"
import type { GridPlay } from "../api/grid"

const SIZE = 64

const channels = (color: string): number[] => [1, 3, 5].map(at => Number.parseInt(color.slice(at, at + 2), 16))

function paint(canvas: HTMLCanvasElement, play: GridPlay, frame: number): void {
  const context = canvas.getContext("2d")
  const numbers = play.frames[frame]
  if (!context || !numbers) return
  const colors = play.palette.map(channels)
  const image = context.createImageData(SIZE, SIZE)
  numbers.forEach((number, y) => {
    const row = play.rows[number] ?? ""
    for (let x = 0; x < SIZE; x++) {
      const color = colors[Number.parseInt(row[x] ?? "0", 16)] ?? [0, 0, 0]
      image.data.set([...color, 255], 4 * (y * SIZE + x))
    }
  })
  context.putImageData(image, 0, 0)
}

interface ScreenProps {
  play: GridPlay
  frame: number
  label: string
  /** Hears a click or a touch, in pixels of the game. */
  onPoint?: ((x: number, y: number) => void) | undefined
}

/** A frame, drawn pixel by pixel. */
export function Screen({ play, frame, label, onPoint }: ScreenProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useEffect(() => {
    if (canvas.current) paint(canvas.current, play, frame)
  }, [play, frame])
  const point = (event: PointerEvent<HTMLCanvasElement>) => {
    const { left, top, width, height } = event.currentTarget.getBoundingClientRect()
    const [x, y] = [((event.clientX - left) / width) * SIZE, ((event.clientY - top) / height) * SIZE]
    onPoint?.(Math.min(SIZE - 1, Math.max(0, Math.floor(x))), Math.min(SIZE - 1, Math.max(0, Math.floor(y))))
  }
  return (
    <canvas
      ref={canvas}
      width={SIZE}
      height={SIZE}
      role="img"
      aria-label={label}
      className={onPoint ? "grid-screen grid-points" : "grid-screen"}
      onPointerDown={onPoint && point}
    />
  )
}
