import type { ComponentType } from "react"
import type { States } from "../api/world"
import { own } from "../own"
import { line } from "../parts/safe"
import { Calendar } from "./apps/Calendar"
import { Apartments, Cabs, Contacts, Files, Generic, Reminders, Shop } from "./apps/Lists"
import { Mail } from "./apps/Mail"
import { Chats, UserTalk } from "./apps/Talks"
import type { View } from "./apps/view"
import { named } from "./words"

const VIEWS = new Map<string, ComponentType<View>>(
  Object.entries({
    Mail,
    Messages: Chats,
    ReadMessages: Chats,
    Calendar,
    CalendarV2: Calendar,
    Contacts,
    Shopping: Shop,
    Cabs,
    Files,
    VirtualFiles: Files,
    Reminders,
    Apartments,
    UserInterface: UserTalk,
  }),
)

interface AppsProps {
  states: States
  kinds: Record<string, string>
  now: number
  /** The app that is open, and what is open in it. */
  app: string
  open: string
  onApp: (app: string) => void
  onOpen: (what: string) => void
  /** How many places just changed, by app. */
  changed: Map<string, number>
  fresh: (app: string) => Set<string>
}

/** The apps as a person would see them, one at a time. */
export function Apps({ states, kinds, now, app, open, onApp, onOpen, changed, fresh }: AppsProps) {
  const names = Object.keys(states)
  const here = names.includes(app) ? app : (names[0] ?? "")
  const Shown = VIEWS.get(own(kinds, here) ?? "") ?? Generic
  return (
    <div className="apps">
      <div className="apps-bar" role="tablist" aria-label="Apps">
        {names.map((name, at) => {
          const count = changed.get(name) ?? 0
          return (
            <button
              key={name}
              type="button"
              role="tab"
              aria-selected={name === here}
              aria-controls="app-shown"
              id={`app-tab-${at}`}
              onClick={() => onApp(name)}
            >
              {line(named(name), 24)}
              {count > 0 && (
                <span className="apps-count" title={`${count} changes`}>
                  {count}
                </span>
              )}
            </button>
          )
        })}
      </div>
      <div className="app" role="tabpanel" id="app-shown" aria-labelledby={`app-tab-${names.indexOf(here)}`}>
        <Shown state={own(states, here) ?? {}} now={now} fresh={fresh(here)} open={open} onOpen={onOpen} />
      </div>
    </div>
  )
}
