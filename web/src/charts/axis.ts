/** The axis of values: its ends, and its ticks as short texts. */

const MAX_DIGITS = 15

function brief(x: number, digits: number): string {
  const size = Math.abs(x)
  const rounded = +x.toPrecision(digits)
  const text =
    size >= 1e6
      ? `${+(rounded / 1e6).toPrecision(digits)}M`
      : size >= 10_000
        ? `${+(rounded / 1e3).toPrecision(digits)}k`
        : size !== 0 && size < 1e-3
          ? x.toExponential(digits - 1).replace(/\.?0+e/, "e")
          : String(rounded)
  return text.replaceAll("-", "\u2212")
}

/** Ticks in as few digits as show their values to a hundredth of their distance. */
export function briefly(ticks: number[]): string[] {
  const apart = Math.min(...ticks.slice(1).map((tick, at) => Math.abs(tick - (ticks[at] ?? 0))))
  const exact = (digits: number) => ticks.every(tick => Math.abs(+tick.toPrecision(digits) - tick) <= apart / 100)
  let digits = 1
  while (digits < MAX_DIGITS && !exact(digits)) digits++
  return ticks.map(tick => brief(tick, digits))
}

/** The ends of an axis with a little room; a flat line stands in the middle, and one at zero on the ground. */
export function room(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1]
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) / 2, low + Math.abs(low) / 2]
  const pad = (high - low) * 0.08
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high <= 0 && high + pad > 0 ? 0 : high + pad]
}
