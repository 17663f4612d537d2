/** Drafted stories and their reviews. */

import { ask, path, send } from "./client"

export interface DraftFolder {
  key: string
  name: string
  drafts?: number
  open?: number
  accepted?: number
  rejected?: number
  problem?: string
}

/** A step of a story; which fields there are says what it is. */
export interface Step {
  by?: string
  app?: string
  action?: string
  args?: Record<string, unknown>
  report?: string
  text?: string
  delay?: number
}

export interface Story {
  request: string
  before?: Record<string, unknown>[]
  then: Step[]
}

export interface DraftOpened {
  draft: {
    name: string
    state: "ready" | "easy" | "failed"
    capability: string
    asks: string
    reason: string
    attempts: number
    solved: Record<string, [number, number]>
  }
  text: string
  digest: string
  decision: "open" | "accepted" | "rejected"
  reviews: { decision: string; comment: string }[]
  story: Story | null
}

export type Decision = "accept" | "reject" | "edit" | "comment"

export const folders = (signal?: AbortSignal): Promise<{ folders: DraftFolder[] }> => ask("/api/drafts", { signal })

export const drafts = (key: string, signal?: AbortSignal): Promise<{ drafts: DraftOpened[] }> =>
  ask(path("/api/drafts/{}", key), { signal })

export const review = (
  key: string,
  name: string,
  body: { do: Decision; comment?: string; text?: string },
): Promise<DraftOpened> => send(path("/api/drafts/{}/{}", key, name), body)
