/** The keyboard: whoever is on the screen says which keys they hear; `?` lists them all. */

import { useEffect, useRef } from "react"

export interface Binding {
  /** `j`, `ArrowDown`, `Shift+J`, or two in a row: `g r`. */
  keys: string[]
  what: string
  run: () => void
}

const layers: { current: Binding[] }[] = []
let first = ""
let firstAt = 0

/** Every binding that is heard now, the newest screen's first. */
export const heard = (): Binding[] => [...layers].reverse().flatMap(layer => layer.current)

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))

function press(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return
  const onControl = event.target instanceof HTMLElement && event.target.closest("a, button, summary, [role=button]")
  if (onControl && (event.key === "Enter" || event.key === " ")) return
  const name = event.shiftKey && event.key.length > 1 ? `Shift+${event.key}` : event.key
  const pair = first && event.timeStamp - firstAt < 1200 ? `${first} ${name}` : null
  const all = heard()
  const found =
    all.find(({ keys }) => pair !== null && keys.includes(pair)) ?? all.find(({ keys }) => keys.includes(name))
  first = found ? "" : name
  firstAt = event.timeStamp
  if (!found) return
  event.preventDefault()
  found.run()
}

/** For a text field: Escape leaves it as it is and gives the keys back to the screen. */
export function leave(event: { key: string; currentTarget: HTMLElement; preventDefault: () => void }): void {
  if (event.key !== "Escape") return
  event.preventDefault()
  event.currentTarget.blur()
}

let listening = false

/** Hear these keys while the component is on the screen. */
export function useKeys(bindings: Binding[]): void {
  const layer = useRef(bindings)
  layer.current = bindings
  useEffect(() => {
    if (!listening) window.addEventListener("keydown", press)
    listening = true
    layers.push(layer)
    return () => {
      layers.splice(layers.indexOf(layer), 1)
    }
  }, [])
}
