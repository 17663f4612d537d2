import type { Plain } from "../../api/world"
import { Choose } from "../../parts/basics"
import { line } from "../../parts/safe"
import { Text } from "../../parts/Text"
import { clock, day, moment } from "../words"
import { Fact } from "./Mail"
import { mark, number, rows, text, texts, type View } from "./view"

const DAY = 86_400
const HOUR = 44
const [FIRST, LAST] = [7, 21]

/** The Monday 00:00 UTC of the week of a time. */
const monday = (seconds: number): number => {
  const midnight = Math.floor(seconds / DAY) * DAY
  return midnight - ((new Date(midnight * 1000).getUTCDay() + 6) % 7) * DAY
}

interface Shown {
  key: string
  event: Plain
  start: number
  end: number
  /** Beside others at the same time: which, of how many. */
  lane: number
  of: number
}

/** The events of a day, side by side where they overlap. */
function dated(events: [string, Plain][], from: number): Shown[] {
  const today = events
    .map(([key, event]) => ({
      key, event, start: number(event.start_datetime), end: number(event.end_datetime), lane: 0, of: 1,
    })) // biome-ignore format: one record
    .filter(one => one.start < from + DAY && Math.max(one.end, one.start + 60) > from)
    .sort((a, b) => a.start - b.start)
  for (const one of today) {
    const beside = today.filter(other => other.start < one.end && other.end > one.start)
    one.of = Math.min(4, beside.length)
    one.lane = beside.indexOf(one) % one.of
  }
  return today
}

/** A week or a day, hour by hour; what is chosen stands below. `open` is `day|week/SECONDS/EVENT`. */
export function Calendar({ state, now, fresh, open, onOpen }: View) {
  const [span = "", at = "", chosen = ""] = open.split("/")
  const view = span === "day" ? "day" : "week"
  const focus = Number(at) || now
  const from = view === "week" ? monday(focus) : Math.floor(focus / DAY) * DAY
  const length = view === "week" ? 7 : 1
  const events = rows(state.events)
  const here = events.find(([key]) => key === chosen)?.[1]
  const to = (seconds: number, event = "") => onOpen(`${view}/${seconds}/${event}`)
  return (
    <div className="calendar">
      <div className="calendar-bar">
        <button type="button" className="button small" onClick={() => to(from - length * DAY)} aria-label="Earlier">
          {"\u2190"}
        </button>
        <button type="button" className="button small" onClick={() => onOpen(`${view}//`)}>
          Now
        </button>
        <button type="button" className="button small" onClick={() => to(from + length * DAY)} aria-label="Later">
          {"\u2192"}
        </button>
        <b>
          {day(from)}
          {view === "week" && ` \u2013 ${day(from + 6 * DAY)}`} {new Date(from * 1000).getUTCFullYear()}
        </b>
        <Choose
          label="Span"
          value={view}
          onChoose={next => onOpen(`${next}/${focus}/${chosen}`)}
          choices={[
            { value: "day", label: "Day" },
            { value: "week", label: "Week" },
          ]}
        />
      </div>
      <div className={`calendar-grid calendar-${view}`}>
        <ol className="calendar-hours" aria-hidden="true">
          {Array.from({ length: LAST - FIRST }, (_, n) => (
            <li key={n}>{FIRST + n}:00</li>
          ))}
        </ol>
        {Array.from({ length }, (_, n) => (
          <Day key={n} from={from + n * DAY} {...{ events, now, fresh, chosen }} onChoose={key => to(focus, key)} />
        ))}
      </div>
      {here && (
        <article className="app-open" aria-label="Appointment">
          <h3>{line(text(here.title), 120)}</h3>
          <dl className="app-facts">
            <Fact name="When" value={`${moment(here.start_datetime)} \u2013 ${moment(here.end_datetime)}`} />
            <Fact name="Where" value={text(here.location)} />
            <Fact name="With" value={texts(here.attendees).join(", ")} />
            <Fact name="Tag" value={text(here.tag)} />
          </dl>
          <Text text={text(here.description)} />
        </article>
      )}
    </div>
  )
}

interface DayProps {
  from: number
  events: [string, Plain][]
  now: number
  fresh: Set<string>
  chosen: string
  onChoose: (key: string) => void
}

function Day({ from, events, now, fresh, chosen, onChoose }: DayProps) {
  const top = (seconds: number) => Math.max(0, Math.min(LAST - FIRST, (seconds - from) / 3600 - FIRST)) * HOUR
  const today = now >= from && now < from + DAY
  return (
    <section className={today ? "calendar-day today" : "calendar-day"} aria-label={day(from)}>
      <h4>{day(from)}</h4>
      <div className="calendar-hold">
        {today && <i className="calendar-now" style={{ top: top(now) }} />}
        {dated(events, from).map(({ key, event, start, end, lane, of }) => (
          <button
            key={key}
            type="button"
            className={`calendar-event${mark(fresh, "events", key)}`}
            aria-pressed={key === chosen}
            title={`${clock(start).slice(0, 5)} ${line(text(event.title), 80)}`}
            style={{
              top: top(start),
              height: Math.max(20, top(end) - top(start) - 2),
              left: `${(100 * lane) / of}%`,
              width: `${100 / of}%`,
            }}
            onClick={() => onChoose(key)}
          >
            <time>{clock(start).slice(0, 5)}</time> {line(text(event.title), 60)}
          </button>
        ))}
      </div>
    </section>
  )
}
