import type { Plain } from "../../api/world"
import { Pill, type Tone } from "../../parts/basics"
import { line } from "../../parts/safe"
import { Text } from "../../parts/Text"
import { moment, spoken } from "../words"
import { Fact } from "./Mail"
import { list, mark, money, newest, number, plain, rows, seconds, text, texts, type View } from "./view"

const called = (one: Plain): string => `${text(one.first_name)} ${text(one.last_name)}`.trim()

/** People, and one of them. */
export function Contacts({ state, fresh, open, onOpen }: View) {
  const people = rows(state.contacts).sort(([, a], [, b]) => called(a).localeCompare(called(b)))
  const here = people.find(([key]) => key === open) ?? people[0]
  return (
    <div className="app-split">
      <div className="app-list">
        <ul>
          {people.map(([key, one]) => (
            <li key={key}>
              <button
                type="button"
                className={`app-row${mark(fresh, "contacts", key)}`}
                aria-pressed={here?.[0] === key}
                onClick={() => onOpen(key)}
              >
                <span className="app-row-head">
                  <b>{line(called(one), 60)}</b>
                  {one.is_user === true && <Pill>the user</Pill>}
                </span>
                <span className="quiet">{line(text(one.description) || text(one.job), 60)}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
      <article className="app-open" aria-label="Person">
        {here && (
          <>
            <h3>{line(called(here[1]), 80)}</h3>
            <dl className="app-facts">
              {Object.entries(here[1])
                .filter(([name]) => !["first_name", "last_name", "is_user"].includes(name))
                .map(([name, value]) => (
                  <Fact key={name} name={spoken(name)} value={text(value)} />
                ))}
            </dl>
          </>
        )}
      </article>
    </div>
  )
}

const TONES = new Map<string, Tone>([
  ["delivered", "good"],
  ["completed", "good"],
  ["cancelled", "bad"],
  ["canceled", "bad"],
  ["booked", "accent"],
])

/** What a status looks like. */
function Status({ value }: { value: string }) {
  return value === "" ? null : (
    <Pill tone={TONES.get(value.toLowerCase()) ?? "plain"}>{line(value.toLowerCase(), 40)}</Pill>
  )
}

/** Orders and the cart first, for these change; then what there is to buy. */
export function Shop({ state, now, fresh }: View) {
  const products = rows(state.products)
  const item = new Map(
    products.flatMap(([, product]) =>
      rows(product.variants).map(([key, variant]) => [key, { name: text(product.name), variant }] as const),
    ),
  )
  const cart = rows(state.cart)
  const orders = newest(rows(state.orders), "order_date")
  const bought = (key: string, one: Plain) =>
    `${number(one.quantity)} \u00d7 ${item.get(key)?.name ?? text(one.item_id) ?? key}`
  return (
    <div className="app-columns">
      <section aria-label="Cart">
        <h3>Cart {cart.length > 0 && <span className="quiet">{cart.length}</span>}</h3>
        {cart.length === 0 && <p className="quiet">The cart is empty.</p>}
        <ul className="app-cards">
          {cart.map(([key, one]) => (
            <li key={key} className={`app-card${mark(fresh, "cart", key)}`}>
              <b>{line(bought(key, one), 80)}</b>
              <span>{money(one.price)}</span>
            </li>
          ))}
        </ul>
        <h3>Orders {orders.length > 0 && <span className="quiet">{orders.length}</span>}</h3>
        <ul className="app-cards">
          {orders.map(([key, order]) => (
            <li key={key} className={`app-card${mark(fresh, "orders", key)}`}>
              <span className="app-row-head">
                <b>{line(key, 40)}</b>
                <Status value={text(order.order_status)} />
              </span>
              <span className="quiet">
                {moment(seconds(order.order_date), now)} {"\u00b7"} {money(order.order_total)}
              </span>
              {rows(order.order_items).map(([id, one]) => (
                <span key={id}>{line(bought(id, one), 80)}</span>
              ))}
            </li>
          ))}
        </ul>
      </section>
      <section aria-label="Products">
        <h3>
          Products <span className="quiet">{products.length}</span>
        </h3>
        <ul className="app-cards">
          {products.map(([key, product]) => (
            <li key={key} className={`app-card${mark(fresh, "products", key)}`}>
              <b>{line(text(product.name), 80)}</b>
              {rows(product.variants).map(([id, variant]) => (
                <span key={id} className={variant.available === false ? "app-row-head quiet" : "app-row-head"}>
                  <span>
                    {line(
                      Object.entries(plain(variant.options))
                        .map(([name, value]) => `${name} ${text(value)}`)
                        .join(", ") || id,
                      60,
                    )}
                    {variant.available === false && " (not available)"}
                  </span>
                  <span>{money(variant.price)}</span>
                </span>
              ))}
            </li>
          ))}
        </ul>
      </section>
    </div>
  )
}

/** Rides, the one under way first. */
export function Cabs({ state, now, fresh }: View) {
  const current = text(state.current)
  const rides = newest(rows(state.ride_history), "time_stamp")
  const quotes = newest(rows(state.quotation_history), "time_stamp")
  const ride = (table: string) => (found: [string, Plain]) => {
    const [key, one] = found
    return (
      <li key={key} className={`app-card${mark(fresh, table, key)}`}>
        <span className="app-row-head">
          <b>
            {line(text(one.start_location), 60)} {"\u2192"} {line(text(one.end_location), 60)}
          </b>
          {current !== "" && current === text(one.ride_id) ? (
            <Pill tone="accent">under way</Pill>
          ) : (
            <Status value={text(one.status)} />
          )}
        </span>
        <span className="quiet">
          {moment(one.time_stamp, now)} {"\u00b7"} {line(text(one.service_type), 30)} {"\u00b7"} {money(one.price)}
          {typeof one.delay === "number" && ` \u00b7 ${one.delay} min to come`}
        </span>
      </li>
    )
  }
  return (
    <div className="app-columns">
      <section aria-label="Rides">
        <h3>Rides</h3>
        {rides.length === 0 && <p className="quiet">No rides yet.</p>}
        <ul className="app-cards">{rides.map(ride("ride_history"))}</ul>
      </section>
      <section aria-label="Prices that were asked for">
        <h3>Prices asked for</h3>
        {quotes.length === 0 && <p className="quiet">None.</p>}
        <ul className="app-cards">{quotes.map(ride("quotation_history"))}</ul>
      </section>
    </div>
  )
}

export function Reminders({ state, fresh }: View) {
  const found = rows(state.reminders).sort(([, a], [, b]) => text(a.due_datetime).localeCompare(text(b.due_datetime)))
  if (found.length === 0) return <p className="quiet pad">No reminders.</p>
  return (
    <ul className="app-cards pad">
      {found.map(([key, one]) => (
        <li key={key} className={`app-card${mark(fresh, "reminders", key)}`}>
          <span className="app-row-head">
            <b>{line(text(one.title), 80)}</b>
            {one.time_notified !== null && <Pill tone="good">given</Pill>}
          </span>
          <span className="quiet">
            {line(text(one.due_datetime), 40)}
            {text(one.repetition_unit) && `, every ${text(one.repetition_value)} ${text(one.repetition_unit)}`}
          </span>
          <Text text={text(one.description)} />
        </li>
      ))}
    </ul>
  )
}

export function Apartments({ state, fresh }: View) {
  const found = rows(state.apartments).sort(([, a], [, b]) => Number(b.saved === true) - Number(a.saved === true))
  return (
    <ul className="app-cards app-tiles pad">
      {found.map(([key, one]) => (
        <li key={key} className={`app-card${mark(fresh, "apartments", key)}`}>
          <span className="app-row-head">
            <b>{line(text(one.name), 60)}</b>
            {one.saved === true && <Pill tone="accent">saved</Pill>}
          </span>
          <span>
            {money(one.price)} a month {"\u00b7"} {text(one.bedrooms)} bed {"\u00b7"} {text(one.bathrooms)} bath
            {" \u00b7 "}
            {text(one.square_footage)} sq ft
          </span>
          <span className="quiet">{line(`${text(one.location)}, ${text(one.zip_code)}`, 80)}</span>
          <span className="quiet">
            {line(
              [one.property_type, one.furnished_status, one.floor_level, one.pet_policy, one.lease_term]
                .map(text)
                .filter(Boolean)
                .join(", "),
              120,
            )}
          </span>
          <span className="quiet">{line(texts(one.amenities).join(", "), 120)}</span>
        </li>
      ))}
    </ul>
  )
}

/** The text of a file that came as base64; null for what is no text. */
function words(content: string): string | null {
  try {
    const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0))
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    return null
  }
}

export function Files({ state, fresh, open, onOpen }: View) {
  const found = rows(state.entries).sort(([a], [b]) => a.localeCompare(b))
  const here = found.find(([path]) => path === open)?.[1]
  const content = here === undefined ? "" : text(here.content)
  return (
    <div className="app-split">
      <div className="app-list">
        <ul>
          {found.map(([path, entry]) => {
            const folder = entry.type === "directory"
            return (
              <li key={path}>
                <button
                  type="button"
                  className={`app-row app-file${mark(fresh, "entries", path)}`}
                  aria-pressed={path === open}
                  disabled={folder}
                  style={{ paddingLeft: 16 + 16 * (path.split("/").length - 1) }}
                  onClick={() => onOpen(path)}
                >
                  <span className="app-row-head">
                    {folder ? (
                      <b>{line(path.split("/").at(-1) ?? path, 60)}/</b>
                    ) : (
                      line(path.split("/").at(-1) ?? path, 60)
                    )}
                    {!folder && <span className="quiet">{number(entry.size).toLocaleString("en-US")} B</span>}
                  </span>
                </button>
              </li>
            )
          })}
        </ul>
        {found.length === 0 && <p className="quiet pad">No files.</p>}
      </div>
      <article className="app-open" aria-label="File">
        {here && (
          <>
            <h3>{line(open, 120)}</h3>
            {content === "" ? (
              <p className="quiet">The scenario knows this file by name only.</p>
            ) : (
              <Text text={words(content) ?? "(no text)"} className="code" />
            )}
          </>
        )}
      </article>
    </div>
  )
}

const SHOWN = 200

/** Any other app: its tables as tables, the rest as it is. */
export function Generic({ state, fresh }: View) {
  const parts = Object.entries(state)
  if (parts.length === 0) return <p className="quiet pad">This app keeps nothing that could be shown.</p>
  return (
    <div className="pad app-generic">
      {parts.map(([name, value]) => {
        const found = rows(value)
        const table = found.length > 0 && found.length === Object.keys(plain(value)).length
        return (
          <section key={name} aria-label={spoken(name)}>
            <h3>
              {line(spoken(name), 60)}{" "}
              {table ? <span className="quiet">{found.length}</span> : <Value value={value ?? null} />}
            </h3>
            {table && <Grid found={found.slice(0, SHOWN)} table={name} fresh={fresh} />}
          </section>
        )
      })}
    </div>
  )
}

function Value({ value }: { value: Plain[string] }) {
  const shown =
    Array.isArray(value) || (typeof value === "object" && value !== null) ? JSON.stringify(value) : text(value)
  return <span className="mono quiet">{line(shown || "none", 300)}</span>
}

function Grid({ found, table, fresh }: { found: [string, Plain][]; table: string; fresh: Set<string> }) {
  const names = [...new Set(found.flatMap(([, row]) => Object.keys(row)))].slice(0, 8)
  return (
    <div className="app-grid">
      <table>
        <thead>
          <tr>
            <th scope="col">key</th>
            {names.map(name => (
              <th key={name} scope="col">
                {line(spoken(name), 30)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.map(([key, row]) => (
            <tr key={key} className={mark(fresh, table, key)}>
              <th scope="row">{line(key, 24)}</th>
              {names.map(name => (
                <td key={name}>
                  {line(Array.isArray(row[name]) ? list(row[name]).map(text).join(", ") : text(row[name]), 80)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
