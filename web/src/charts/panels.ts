/** Which metrics belong together, and in which order they are looked at. */

import type { Metrics } from "../api/types"

export interface PanelOf {
  title: string
  about: string
  names: string[]
}

const known = (names: string[], wanted: string[]): string[] => wanted.filter(name => names.includes(name))

/** The panels of a stage: what everyone asks first, then the rest by prefix. */
export function panels({ names }: Metrics): PanelOf[] {
  const prefix = (start: string) => names.filter(name => name.startsWith(start))
  const first: PanelOf[] = [
    { title: "Reward", about: "Mean over the step's scored rollouts", names: known(names, ["reward"]) },
    { title: "Reward parts", about: "Raw value of each reward function, before weighting", names: prefix("part/") },
    { title: "Entropy", about: "Nats per sampled token", names: known(names, ["entropy"]) },
    {
      title: "Sampler KL (k3)",
      about: "KL divergence of sampler and trainer on the same tokens",
      names: known(names, ["sampler_kl_k3"]),
    },
    {
      title: "Groups with signal",
      about: "Fraction of groups with non-zero advantages",
      names: known(names, ["frac_groups_with_signal"]),
    },
    {
      title: "Time of a step",
      about: "Seconds of rollouts and of the update",
      names: known(names, ["rollout_s", "update_s"]),
    },
    {
      title: "Trainer idle",
      about: "Fraction of the step in which the trainer waited for rollouts",
      names: known(names, ["trainer_idle_frac"]),
    },
    {
      title: "Throughput",
      about: "Tokens per second of each half",
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
  const rest = [...groups].map(([title, members]) => ({ title: title.replaceAll("_", " "), about: "", names: members }))
  return [...first.filter(panel => panel.names.length), ...rest.sort((a, b) => (a.title < b.title ? -1 : 1))]
}

const SAID: Record<string, string> = {
  sampler_kl_k3: "KL",
  frac_groups_with_signal: "fraction",
  rollout_s: "rollout",
  update_s: "update",
  trainer_idle_frac: "fraction",
  rollout_tokens_per_s: "rollout",
  update_tokens_per_s: "update",
  tokens_per_s: "both",
}

/** A metric's name without what its panel's title says already. */
export const short = (name: string): string => SAID[name] ?? name.slice(name.lastIndexOf("/") + 1).replaceAll("_", " ")
