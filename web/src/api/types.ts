/** What the server says, in its own words: docs/studio.md describes each. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

export interface RunInfo {
  key: string
  path: string
  name: string
  recipe: string | null
  kind: "training" | "evaluation" | "other"
  env: string | null
  policy: string | null
  stage: string | null
  step: number | null
  of: number | null
  finished: boolean
  running: boolean
  paused: boolean
  controllable: boolean
  reward: number | null
  rollouts: number
  errors: number
  coverage: number | null
  /** Recorded by the run itself; null where it recorded nothing. */
  seconds: number | null
  /** What `seconds` covers. */
  seconds_of: "run" | "steps" | "rollouts" | ""
  /** Where the code changed during an evaluation: the reward of each version, and no common one. */
  versions: { digest: string; reward: number | null; scored: number }[]
  /** Unix seconds of the newest change. */
  touched: number
  /** One line: why this run cannot be read. */
  problem: string | null
}

export interface Stage {
  name: string
  first: number
  last: number
  rollouts: number
  statuses: Record<string, number>
}

export interface Field {
  name: string
  /** The name as a filter writes it: `parts."two words"` for `parts.two words`. */
  text: string
  type: "text" | "number"
  example: string | number | null
}

export interface Run extends RunInfo {
  config: Json
  lock: Lock | null
  meta: Json
  stages: Stage[]
  fields: Field[]
  tokens: boolean
  command: string | null
  trained: Trained | null
}

/** What a finished training run came to. */
export interface Trained {
  /** The sampled evaluation; null where there was none. */
  result: {
    metric: string
    tasks: number
    samples: number
    temperature: number
    /** `truths`: the held-out parts, by name; null in runs of older versions, as are the next ones. */
    rows: {
      /** Which seat against whom, where several learn. */
      match?: string
      policy: string
      step: number | null
      reward: Estimate | null
      truths?: Record<string, Estimate | null>
      failed: number
    }[]
    difference: (Estimate & { p_value: number }) | null
    matches?: Record<string, Estimate & { p_value: number }> | null
    truths: Record<string, Estimate & { p_value: number }> | null
    warnings: string[] | null
    verdict: "better" | "worse" | "none" | "exploited" | "doubtful" | "overfitted" | "mixed" | "self-play"
    sentence: string
    seconds: number
  } | null
  policy_sentence: string
  advice: string[]
}

/** What `wander.lock` says made the run. */
export interface Lock {
  problem?: string
  python: string
  platform: string
  command: string[] | null
  packages: Record<string, string>
  made_by: { digest: string; inputs: Record<string, string>; changed: string[] }[]
  sources: string[]
}

export interface Estimate {
  value: number
  low: number | null
  high: number | null
  /** Rollouts, and tasks that they belong to. */
  count: number
  clusters: number
}

/** Figures of an evaluation, as `report.json` has them. */
export interface Report {
  tasks: number
  played: number
  scored: number
  rewards: Record<string, Estimate>
  passes: Record<string, Estimate>
  parts: Record<string, Estimate>
  metrics: Record<string, Estimate>
  errors: Record<string, { count: number; first: string; places?: Record<string, number> }>
  stops: Record<string, number>
  usage: {
    turns: number
    tokens_in: number
    tokens_out: number
    seconds: number | null
    latency: Record<string, number>
    dollars: number | null
  }
  group_by?: string
  breakdown?: Record<string, Report>
  /** By digest, where the code changed meanwhile: then the figures above are empty. */
  by_code?: Record<string, Report>
  /** Rollouts that were asked for and not begun, and why. */
  not_started?: number
  stopped?: string
}

export interface Result {
  report: Report
  /** Whether the figures are those that the finished evaluation wrote. */
  complete: boolean
  /** Keys of the tasks' info by which figures can be broken down. */
  keys: string[]
  /** By digest of a version, what changed since the one before. */
  changes: Record<string, string[]>
}

export interface Series {
  steps: number[]
  values: (number | null)[]
}

export interface Metrics {
  names: string[]
  series: Record<string, Series>
  stages: string[]
}

export interface RunEvent {
  id: number
  kind: string
  body: Json
}

/** The body of an event of kind "reward_hacking_warning". */
export interface Finding {
  monitor: string
  step: number
  stage: string
  text: string
  evidence: number[]
  figure: number | null
}

export interface Row {
  id: number
  stage: string
  step: number
  group: number
  sample_index: number
  env: string
  task: string
  seed: number
  status: string
  stop_reason: string
  reward: number | null
  advantage: number | null
  turns: number
  tokens_in: number
  tokens_out: number
  seconds: number
  answer?: string | null
  target?: string | null
}

export interface Page {
  total: number
  offset: number
  rows: Row[]
}

export interface StepGroup {
  group: number
  task: string
  n: number
  mean: number | null
  low: number | null
  high: number | null
  has_signal: boolean
  ids: number[]
}

export interface ToolCall {
  id: string
  name: string
  arguments: string
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool"
  content: string
  tool_calls?: ToolCall[]
  tool_call_id?: string | null
  reasoning?: string | null
  /** Full length in characters when `reasoning` was cut. */
  reasoning_cut?: number
  name?: string | null
  /** Full length in characters when `content` was cut. */
  cut?: number
}

export interface Score {
  reward: number
  parts: Record<string, number>
  metrics: Record<string, number>
  notes: Record<string, string>
}

export interface Turn {
  observation: Message[]
  action: Message
  replaces: boolean
  /** Index of the turn that it continues; null where it begins a conversation. */
  parent: number | null
  finish: string
  usage: Record<string, number>
  tokens: null | { prompt: number; completion: number; offset: number; version: number }
}

export interface Trajectory {
  seat: string
  trainable: boolean
  advantage: number | null
  score: Score | null
  rewards: number[]
  turns: Turn[]
}

export interface Task {
  id: string
  prompt: Message[]
  answer: Json
  info: Json
}

export interface Opened {
  row: Row
  task: Task
  status: string
  stop_reason: string
  error: string | null
  /** Where it failed; null where it did not, and in runs of before. */
  failure?: { place: string; traceback: string; output: string; advice: string } | null
  state: Record<string, Json>
  again: string | null
  previous: number | null
  next: number | null
  trajectories: Trajectory[]
  world: boolean
  /** Whether it is a grid game, whose frames can be shown. */
  grid: boolean
}

export interface GroupOpened {
  task: Task
  /** The first of them. */
  rollouts: Opened[]
  total: number
  diverge: (null | { turn: number; character: number })[]
}

export interface Token {
  id: number
  text: string | null
  logprob: number | null
  sampled: boolean
  advantage: number | null
}

export interface Tokens {
  tokens: Token[]
  tokenizer: string | null
  why: string | null
}

export interface ComparedTask {
  task: string
  /** Mean rewards, and over how many scored samples. */
  a: number
  b: number
  a_samples: number
  b_samples: number
  /** The pair of samples that shows the difference. */
  a_id: number
  b_id: number
  /** Passed only in the second run, only in the first, or neither. */
  flip: "gained" | "lost" | null
}

export interface Comparison {
  a: string
  b: string
  /** What was compared, where that is not an evaluation. */
  a_about: string
  b_about: string
  tasks: ComparedTask[]
  /** Tasks that only one of the runs scored. */
  missing: number
  difference: { mean: number; low: number | null; high: number | null }
  verdict: string
}

export interface Sample {
  id: number
  sample_index: number
  reward: number | null
  status: string
  stop_reason: string
}

/** Every sample of one task in two runs. */
export interface ComparedSamples {
  task: string
  a: Sample[]
  b: Sample[]
}

export type Control = "pause" | "resume" | "stop"

/** The body of a `run` event on the stream. */
export interface Tick {
  key: string
  rollouts: number
  last_id: number
  step: number | null
  stage: string | null
  /** Newest value by stage and name: `[step, value]`. */
  metrics: Record<string, Record<string, [number, number | null]>>
  event: number | null
}
