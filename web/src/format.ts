/** Figures as people read them. */

const MINUS = "\u2212"
const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 })

/** Thousands apart: 1,024. */
export const count = (n: number): string => GROUPED.format(n).replace("-", MINUS)

/** Three places after the point for the ordinary, four digits for the rest; a dash for what is unknown. */
export function figure(x: number | null | undefined, places = 3): string {
  if (x === null || x === undefined || !Number.isFinite(x)) return "\u2013"
  const size = Math.abs(x)
  if (size !== 0 && (size < 10 ** -places || size >= 1e6))
    return x.toExponential(2).replaceAll("-", MINUS).replace("e+", "e")
  if (size >= 1000) return count(Math.round(x))
  return x.toFixed(size >= 100 ? 1 : places).replace("-", MINUS)
}

/** Sums of a few floats miss zero by less than this. */
const FLOAT_DUST = 1e-9

/** With its sign, for differences and advantages, which are sums: what float arithmetic leaves of zero is zero. */
export function signed(x: number | null | undefined, places = 3): string {
  if (x === null || x === undefined) return "\u2013"
  return Math.abs(x) < FLOAT_DUST ? "0" : (x > 0 ? "+" : "") + figure(x, places)
}

export const percent = (share: number | null | undefined): string =>
  share === null || share === undefined ? "\u2013" : `${(100 * share).toFixed(share === 1 || share === 0 ? 0 : 1)}%`

/** 3.1 ms, 0.42 s, 12.3 s, 4 min 05 s, 2 h 10 min, 3 d 4 h; what was not recorded is unknown. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "unknown"
  if (seconds > 0 && seconds < 0.1) return `${+(seconds * 1000).toPrecision(2)} ms`
  if (seconds < 10) return `${seconds.toFixed(2)} s`
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  const whole = Math.round(seconds)
  const [m, s, h] = [Math.floor(whole / 60), whole % 60, Math.floor(whole / 3600)]
  if (h >= 48) return `${Math.floor(h / 24)} d ${h % 24} h`
  if (h > 0) return `${h} h ${String(m % 60).padStart(2, "0")} min`
  return `${m} min ${String(s).padStart(2, "0")} s`
}

export function ago(unix: number, now = Date.now() / 1000): string {
  const past = Math.max(0, now - unix)
  if (past < 5) return "now"
  if (past < 90) return `${Math.round(past)} s ago`
  if (past < 5400) return `${Math.round(past / 60)} min ago`
  if (past < 129_600) return `${Math.round(past / 3600)} h ago`
  return `${Math.round(past / 86_400)} d ago`
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`
}
