/** What two texts have in common, word by word: Myers' greedy difference, given up where texts have little in common. */

export interface Part {
  kind: "both" | "left" | "right"
  text: string
}

const MOST_EDITS = 1500

const words = (text: string): string[] => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []

/** For each number of edits, how far every diagonal came; null when more than MOST_EDITS are needed. */
function trace(a: string[], b: string[]): Map<number, number>[] | null {
  let reach = new Map<number, number>([[1, 0]])
  const history: Map<number, number>[] = []
  for (let edits = 0; edits <= Math.min(a.length + b.length, MOST_EDITS); edits++) {
    history.push(new Map(reach))
    for (let k = -edits; k <= edits; k += 2) {
      const [below, above] = [reach.get(k - 1) ?? -1, reach.get(k + 1) ?? -1]
      let x = k === -edits || (k !== edits && below < above) ? above : below + 1
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++
      reach = reach.set(k, x)
      if (x >= a.length && x - k >= b.length) return history
    }
  }
  return null
}

function backwards(a: string[], b: string[], history: Map<number, number>[]): Part[] {
  const out: Part[] = []
  let [x, y] = [a.length, b.length]
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const reach = history[edits] as Map<number, number>
    const k = x - y
    const [below, above] = [reach.get(k - 1) ?? -1, reach.get(k + 1) ?? -1]
    const from = k === -edits || (k !== edits && below < above) ? k + 1 : k - 1
    const [startX, startY] = edits === 0 ? [0, 0] : [reach.get(from) ?? 0, (reach.get(from) ?? 0) - from]
    while (x > startX && y > startY) {
      out.push({ kind: "both", text: a[--x] as string })
      y--
    }
    if (edits === 0) break
    if (x > startX) out.push({ kind: "left", text: a[--x] as string })
    else if (y > startY) out.push({ kind: "right", text: b[--y] as string })
  }
  return out.reverse()
}

function joined(parts: Part[]): Part[] {
  const out: Part[] = []
  for (const part of parts) {
    const last = out.at(-1)
    if (last?.kind === part.kind) last.text += part.text
    else if (part.text) out.push({ ...part })
  }
  return out
}

/** The parts of both texts in order. Texts that differ nearly everywhere come as one whole beside the other. */
export function difference(left: string, right: string): Part[] {
  const [a, b] = [words(left), words(right)]
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  let end = 0
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const [middleA, middleB] = [a.slice(start, a.length - end), b.slice(start, b.length - end)]
  const history = trace(middleA, middleB)
  const middle: Part[] = history
    ? backwards(middleA, middleB, history)
    : [
        { kind: "left", text: middleA.join("") },
        { kind: "right", text: middleB.join("") },
      ]
  return joined([
    { kind: "both", text: a.slice(0, start).join("") },
    ...middle,
    { kind: "both", text: end ? a.slice(a.length - end).join("") : "" },
  ])
}
