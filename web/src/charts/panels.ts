/** Which metrics belong together, and in which order they are looked at. */

import type { Metrics } from "../api/types"

export interface PanelOf {
  title: string
  about: string
  /** Of the values on the axis; empty for plain numbers. */
  unit: string
  names: string[]
}

/** "Clip fraction": as every other title is written. */
export const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

/** The unit that a metric's name ends in. */
const UNITS: [RegExp, string][] = [
  [/tokens_per_s$/, "tokens/s"],
  [/rollouts_per_s$/, "rollouts/s"],
  [/(_s|seconds)$/, "seconds"],
  [/(^|[_/])(frac|fraction|share|rate)([_/]|$)/, "share"],
]

/** The unit of metrics that share an axis; empty where they have none, or several. */
export function unitOf(names: string[]): string {
  const units = new Set(names.map(name => UNITS.find(([form]) => form.test(name))?.[1] ?? ""))
  return units.size === 1 ? ([...units][0] ?? "") : ""
}

const known = (names: string[], wanted: string[]): string[] => wanted.filter(name => names.includes(name))

/** The panels of a stage: what everyone asks first, then the rest by prefix. */
export function panels({ names }: Metrics): PanelOf[] {
  const prefix = (start: string) => names.filter(name => name.startsWith(start))
  const first: PanelOf[] = [
    { title: "Reward", about: "Mean over the step's scored rollouts", unit: "", names: known(names, ["reward"]) },
    {
      title: "Reward parts",
      about: "Raw value of each reward function, before weighting",
      unit: "",
      names: prefix("part/"),
    },
    { title: "Entropy", about: "Per sampled token", unit: "nats", names: known(names, ["entropy"]) },
    {
      title: "Sampler KL (k3)",
      about: "KL divergence of sampler and trainer on the same tokens",
      unit: "nats",
      names: known(names, ["sampler_kl_k3"]),
    },
    {
      title: "Groups with signal",
      about: "Groups with non-zero advantages",
      unit: "share",
      names: known(names, ["frac_groups_with_signal"]),
    },
    {
      title: "Time of a step",
      about: "Rollouts and the update, by the wall clock",
      unit: "seconds",
      names: known(names, ["rollout_s", "update_s"]),
    },
    {
      title: "Trainer idle",
      about: "Part of the step in which the trainer waited for rollouts",
      unit: "share",
      names: known(names, ["trainer_idle_frac"]),
    },
    {
      title: "Throughput",
      about: "Of each half of a step",
      unit: "tokens/s",
      names: known(names, ["rollout_tokens_per_s", "update_tokens_per_s", "tokens_per_s"]),
    },
  ]
  const placed = new Set(first.flatMap(panel => panel.names))
  const groups = new Map<string, string[]>()
  for (const name of names) {
    if (placed.has(name)) continue
    const title = name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : name
    groups.set(title, [...(groups.get(title) ?? []), name])
  }
  const rest = [...groups].map(([title, members]) => ({
    title: capital(title.replaceAll("_", " ")),
    about: "",
    unit: unitOf(members),
    names: members,
  }))
  return [...first.filter(panel => panel.names.length), ...rest.sort((a, b) => (a.title < b.title ? -1 : 1))]
}

const SHORT_NAMES = new Map(
  Object.entries({
    sampler_kl_k3: "KL",
    frac_groups_with_signal: "share",
    rollout_s: "rollout",
    update_s: "update",
    trainer_idle_frac: "share",
    rollout_tokens_per_s: "rollout",
    update_tokens_per_s: "update",
    tokens_per_s: "both",
  }),
)

/** A metric's name without what its panel's title says already. */
export function short(name: string): string {
  const last = name.slice(name.lastIndexOf("/") + 1)
  return last === name ? capital(SHORT_NAMES.get(name) ?? name.replaceAll("_", " ")) : last // a part has a name of its own
}
