/** A chart as a file: drawn anew as SVG; a PNG is that SVG, painted. */

import { figure } from "../format"
import { type Drawn, dashes, type Inks } from "./series"

const [WIDTH, HEIGHT] = [960, 480]
const ROOM = { left: 72, right: 24, top: 56, bottom: 64 }

const quoted = (text: string): string =>
  text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`).replace(/[^\u0020-\ud7ff\ue000-\ufffd]/g, "\ufffd")

function ticks(low: number, high: number, wanted: number): number[] {
  const rough = (high - low) / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) ?? rough
  const first = Math.ceil(low / step)
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, n) => (first + n) * step)
}

export interface Picture {
  title: string
  steps: number[]
  drawn: Drawn[]
}

/** The chart as a standalone SVG. */
export function svg({ title, steps, drawn }: Picture, ink: Inks): string {
  const all = drawn.flatMap(line => line.values.filter(value => value !== null))
  const [first, last] = [steps[0] ?? 0, steps.at(-1) ?? 1]
  const [least, most] = [Math.min(...all), Math.max(...all)]
  const pad = (most - least || Math.abs(most) || 1) * 0.05
  const [low, high] = [least - pad, most + pad]
  const x = (step: number) => ROOM.left + ((step - first) / (last - first || 1)) * (WIDTH - ROOM.left - ROOM.right)
  const y = (value: number) => HEIGHT - ROOM.bottom - ((value - low) / (high - low)) * (HEIGHT - ROOM.top - ROOM.bottom)
  const words = (text: string, at: string, more = "") =>
    `<text ${at} fill="${ink.quiet}" ${more}>${quoted(text)}</text>`
  const rows = ticks(low, high, 5).flatMap(value => [
    `<path d="M${ROOM.left} ${y(value)}H${WIDTH - ROOM.right}" stroke="${ink.line}"/>`,
    words(figure(value), `x="${ROOM.left - 8}" y="${y(value) + 4}"`, 'text-anchor="end"'),
  ])
  const columns = ticks(first, last || 1, 8).map(step =>
    words(String(step), `x="${x(step)}" y="${HEIGHT - ROOM.bottom + 20}"`, 'text-anchor="middle"'),
  )
  const lines = drawn.map(line => {
    let pen = "M"
    const path = line.values.map((value, at) => {
      if (value === null) return ""
      const point = `${pen}${x(steps[at] ?? 0).toFixed(1)} ${y(value).toFixed(1)}`
      pen = "L"
      return point
    })
    const dash = line.dash ? ` stroke-dasharray="${dashes(line.dash).join(" ")}"` : ""
    return `<path d="${path.join("")}" fill="none" stroke="${line.colour}" stroke-width="2" stroke-linejoin="round"${dash}/>`
  })
  const legend = drawn.map((line, at) => {
    const left = ROOM.left + at * Math.min(200, 840 / drawn.length)
    return `<path d="M${left} ${HEIGHT - 20}h16" stroke="${line.colour}" stroke-width="3" stroke-dasharray="${dashes(line.dash).join(" ")}"/>${words(line.label, `x="${left + 22}" y="${HEIGHT - 16}"`)}`
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="${ink.card}"/>`,
    `<text x="${ROOM.left}" y="32" font-size="16" font-weight="600" fill="${ink.ink}">${quoted(title)}</text>`,
    ...rows,
    ...columns,
    ...lines,
    ...(drawn.length > 1 ? legend : []),
    "</svg>",
  ].join("")
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** Hand the picture to the browser's downloads. */
export async function keep(picture: Picture, ink: Inks, form: "svg" | "png"): Promise<void> {
  const name = `${picture.title.replace(/[^\w.-]+/g, "-")}.${form}`
  const drawn = svg(picture, ink)
  if (form === "svg") {
    save(new Blob([drawn], { type: "image/svg+xml" }), name)
    return
  }
  const image = new Image()
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawn)}`
  await image.decode()
  const canvas = document.createElement("canvas")
  ;[canvas.width, canvas.height] = [2 * WIDTH, 2 * HEIGHT]
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height)
  canvas.toBlob(blob => blob && save(blob, name), "image/png")
}
