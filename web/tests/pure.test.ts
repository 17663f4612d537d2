/** The page's pure logic: figures, axes, names that every object has, filters and orders. */

import { createElement } from "react"
import { renderToStaticMarkup } from "react-dom/server"
import { beforeAll, describe, expect, test, vi } from "vitest"
import { mainSeat } from "../src/api/seat"
import type { Field, Metrics, Trajectory, Turn } from "../src/api/types"
import { briefly, room } from "../src/charts/axis"
import { panels, short, unitOf } from "../src/charts/panels"
import { dashes, linesOf } from "../src/charts/series"
import { count, duration, figure, signed } from "../src/format"
import { frameGraph } from "../src/grid/frames"
import { own, setOwn } from "../src/own"
import { Message } from "../src/parts/Message"
import { line, pieces } from "../src/parts/safe"
import { ending } from "../src/play/ending"
import { ordered, tally } from "../src/screens/compared"
import { conversationEnds, lanes, pathTo } from "../src/screens/ConversationGraph"
import { completed, MAX_OFFERED, offered } from "../src/screens/offered"
import { sorted } from "../src/screens/stepOrder"
import { titles } from "../src/screens/titles"
import { differences } from "../src/world/past"

const INHERITED = ["constructor", "toString", "valueOf", "hasOwnProperty", "__proto__"]

/** As `JSON.parse` makes it: an own member, whatever its name. */
const parsed = <T>(names: string[], value: T): Record<string, T> =>
  JSON.parse(`{${names.map(name => `${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(",")}}`)

const metrics = (...names: string[]): Metrics => ({
  names,
  series: parsed(names, { steps: [0], values: [1] }),
  stages: ["rl"],
})

describe("names that every object has", () => {
  test.each(INHERITED)("a metric may be called %s", name => {
    const [panel] = panels(metrics(name))
    expect(panel?.names).toEqual([name])
    expect(typeof short(name)).toBe("string")
    expect(panels(metrics(`part/${name}`))[0]?.names).toEqual([`part/${name}`])
    expect(typeof short(`part/${name}`)).toBe("string")
  })

  test.each(INHERITED)("%s is no value of an empty record, and can be given one", name => {
    expect(own({}, name)).toBeUndefined()
    expect(own(parsed([name], 3), name)).toBe(3)
    const record: Record<string, number> = {}
    expect(own(setOwn(record, name, 4), name)).toBe(4)
    expect(Object.getPrototypeOf(record)).toBe(Object.prototype)
    expect({}.constructor).toBe(Object)
  })
})

test.each(INHERITED)("a row called %s is new where there was none", name => {
  const after = { Contacts: { rows: parsed([name], "Ana") } }
  expect(differences({ Contacts: { rows: {} } }, after)).toEqual([
    { app: "Contacts", path: ["rows", name], before: undefined, after: "Ana" },
  ])
})

describe("figures", () => {
  test("what float arithmetic leaves of zero is zero", () => {
    expect(signed(-2.78e-16)).toBe("0")
    expect(signed(0)).toBe("0")
    expect(signed(0.25)).toBe("+0.250")
    expect(signed(-0.25)).toBe("\u22120.250")
    expect(signed(null)).toBe("\u2013")
  })

  test("small figures that are no differences stay", () => expect(figure(2.5e-10)).toBe("2.50e\u221210"))

  test("a duration that was not recorded is unknown", () => {
    expect(duration(null)).toBe("unknown")
    expect(duration(0.0004)).toBe("0.4 ms")
    expect(duration(0.42)).toBe("0.42 s")
    expect(duration(245)).toBe("4 min 05 s")
  })
})

describe("axes", () => {
  test.each([
    [
      [1e-9, 1.5e-9, 2e-9],
      ["1e\u22129", "1.5e\u22129", "2e\u22129"],
    ],
    [
      [0, 0.5, 1],
      ["0", "0.5", "1"],
    ],
    [
      [1200, 1225, 1250],
      ["1200", "1225", "1250"],
    ],
    [
      [10_000, 20_000],
      ["10k", "20k"],
    ],
    [
      [1_000_000, 1_250_000],
      ["1M", "1.25M"],
    ],
    [
      [-0.2, 0],
      ["\u22120.2", "0"],
    ],
  ])("%j is written as it is", (ticks, texts) => expect(briefly(ticks)).toEqual(texts))

  test("a flat zero has an axis to one", () => expect(room(0, 0)).toEqual([0, 1]))
  test("a flat line stands in the middle", () => expect(room(4, 4)).toEqual([2, 6]))
  test("nothing below zero is promised where nothing is", () => expect(room(0, 1)[0]).toBe(0))
})

describe("panels", () => {
  test("titles begin with a capital, and axes have their units", () => {
    const [panel] = panels(metrics("clip_fraction"))
    expect([panel?.title, panel?.unit]).toEqual(["Clip fraction", "share"])
    expect(panels(metrics("rollout_s", "update_s"))[0]?.unit).toBe("seconds")
    expect(panels(metrics("tokens_per_s"))[0]?.unit).toBe("tokens/s")
    expect(unitOf(["rollouts_per_s"])).toBe("rollouts/s")
    expect(unitOf(["lr"])).toBe("")
    expect(unitOf(["rollout_s", "reward"])).toBe("")
  })
})

describe("runs laid over each other", () => {
  const panel = { title: "Reward parts", about: "", unit: "", names: ["part/a", "part/b", "part/c"] }
  const all = ["one", "two", "three"].map(name => ({ name, metrics: metrics(...panel.names) }))
  const looks = (lines: { colour: number; dash: number }[]) =>
    lines.map(({ colour, dash }) => `${colour} ${dashes(dash).join(" ")}`)

  test("no two lines look alike, and a run has one colour", () => {
    const lines = linesOf(panel, all)
    expect(new Set(looks(lines)).size).toBe(9)
    expect(lines.map(line => line.colour)).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3])
    expect(linesOf({ ...panel, names: ["part/b"] }, all).map(line => line.colour)).toEqual([1, 2, 3])
    expect(lines[8]?.label).toBe("c \u00b7 three")
  })

  test("a run by itself has a colour for each metric", () => {
    const lines = linesOf(panel, all.slice(0, 1))
    expect(lines.map(({ label, colour, dash }) => [label, colour, dash])).toEqual([
      ["a", 1, 0],
      ["b", 2, 0],
      ["c", 3, 0],
    ])
  })

  test("every pattern of dashes is another", () => {
    expect(new Set(Array.from({ length: 30 }, (_, n) => dashes(n).join(" "))).size).toBe(30)
  })
})

test("runs of one name are told apart by their folders", () => {
  const run = (key: string, path: string) => ({ key, path, name: path.split("/").at(-1) ?? "" })
  const found = titles([
    run("flawed", "/runs/titles/flawed"),
    run("flawed~2", "/runs/connections/flawed"),
    run("plain", "/runs/plain"),
    run("x", "/a/lab/x"),
    run("x~2", "/b/lab/x"),
  ])
  expect([...found.values()]).toEqual(["titles/flawed", "connections/flawed", "plain", "x", "x~2"])
})

describe("the end of a game", () => {
  const left = (winner: string | null) => ({ board: "XXOOO.X.X", winner, moves: ["X0", "O4"] })
  const env = "tictactoe,low=0"

  test.each([
    ["agent", "O", "lost"],
    ["agent", "X", "won"],
    ["opponent", "O", "won"],
    ["agent", "draw", "draw"],
    ["agent", null, "undecided"],
  ])("%s, when the winner is %s: %s", (seat, winner, result) => {
    const end = ending({ env, seat, state: left(winner) })
    expect([end?.result, end?.last]).toEqual([result, "O4"])
    expect(end?.cells).toEqual(["X", "X", "O", "O", "O", "5", "X", "7", "X"])
  })

  test("other games and games under way have none", () => {
    expect(ending({ env: "wordle", seat: "agent", state: left("X") })).toBeNull()
    expect(ending({ env, seat: "agent", state: {} })).toBeNull()
  })
})

test("a call without a result is not said to have ended anything", () => {
  const message = {
    role: "assistant" as const,
    content: "",
    tool_calls: [{ id: "1", name: "send_message_to_user", arguments: "{}" }],
  }
  const shown = renderToStaticMarkup(createElement(Message, { message }))
  expect(shown).toContain("no result is recorded")
})

describe("comparison", () => {
  const task = (name: string, a: number, b: number, flip: "gained" | "lost" | null = null) => ({
    ...{ task: name, a, b, flip },
    ...{ a_samples: 2, b_samples: 2, a_id: 1, b_id: 2 },
  })
  const tasks = [
    task("small", 0.5, 0.6),
    task("same", 1, 1),
    task("worse", 1, 0.2, "lost"),
    task("better", 0, 1, "gained"),
  ]
  const names = (kind: string, sort: string) => ordered(tasks, kind, sort).map(one => one.task)

  test("the largest difference comes first, whatever its sign", () => {
    expect(names("all", "-size")).toEqual(["better", "worse", "small", "same"])
    expect(names("all", "size")).toEqual(["same", "small", "worse", "better"])
  })

  test("tasks are counted by kind", () => {
    expect(["all", "better", "worse", "alike", "flipped"].map(kind => tally(tasks, kind))).toEqual([4, 2, 1, 1, 2])
  })

  test("a task that is alike has a row too", () => {
    expect(names("alike", "task")).toEqual(["same"])
    expect(names("better", "task")).toEqual(["better", "small"])
    expect(names("worse", "-size")).toEqual(["worse"])
    expect(names("flipped", "-size")).toEqual(["better", "worse"])
    expect(names("constructor", "toString")).toHaveLength(4)
  })
})

test("groups of a step are ordered by their mean, those without one last", () => {
  const group = (at: number, mean: number | null) => ({
    ...{ group: at, task: "t", n: 2, mean, low: mean, high: mean },
    ...{ has_signal: false, ids: [at] },
  })
  const groups = [group(0, 0.5), group(1, null), group(2, 0.1), group(3, 0.5)]
  expect(sorted(groups, "mean").map(one => one.group)).toEqual([2, 0, 3, 1])
  expect(sorted(groups, "-mean").map(one => one.group)).toEqual([0, 3, 2, 1])
  expect(sorted(groups, "constructor")).toEqual(groups)
})

describe("the filter of an export", () => {
  let parse: typeof import("../src/api/filter").parse
  beforeAll(async () => {
    vi.stubGlobal("document", { querySelector: () => null }) // the client asks the page whether it is an export
    ;({ parse } = await import("../src/api/filter"))
  })
  const fields: Field[] = [
    { name: "reward", text: "reward", type: "number", example: 1 },
    { name: "env", text: "env", type: "text", example: "tictactoe" },
    { name: "parts.constructor", text: "parts.constructor", type: "number", example: null },
    { name: 'metrics.a "b".c', text: 'metrics."a \\"b\\".c"', type: "number", example: null },
    { name: "parts.größe.x", text: "parts.größe.x", type: "number", example: null },
  ]
  const columns = new Map<string, (number | string | null)[]>([
    ["reward", [0.1, 0.5, null]],
    ["env", ["tictactoe", "wordle", "tictactoe"]],
    ["parts.constructor", [1, 0, null]],
    ['metrics.a "b".c', [2, 3, 4]],
    ["parts.größe.x", [5, 6, 7]],
  ])
  const passing = (filter: string) => [0, 1, 2].filter(parse(filter, fields, columns))

  test.each([
    ['env == "tictactoe"', [0, 2]],
    ["reward < 0.2 or reward == null", [0, 2]],
    ['not (env contains "word")', [0, 2]],
    ["reward != 0.5", [0, 2]],
    ["reward in (0.1, 0.5)", [0, 1]],
    ["parts.constructor < 1", [1]],
    ['parts."constructor" == null', [2]],
    ['metrics."a \\"b\\".c" > 2 and parts.größe.x < 7', [1]],
    ["parts.größe.'x' == 5", [0]],
  ])("%s", (filter, rows) => expect(passing(filter)).toEqual(rows))

  test.each([
    "constructor == 1",
    "parts.toString == 1",
    "parts == 1",
    "metrics. == 1",
    "reward toString 1",
    "reward contains 1",
    "env contains null",
    "__proto__ == null",
    "reward <",
  ])("%s is refused", filter => expect(() => parse(filter, fields, columns)).toThrow(/filter/))
})

describe("the fields that the filter offers", () => {
  const field = (name: string, text = name): Field => ({ name, text, type: "number", example: null })
  const fields = [field("reward"), field("parts.format"), field("metrics.two words", 'metrics."two words"')]
  const names = (draft: string) => offered(draft, fields).fields.map(one => one.name)

  test("parts and metrics where nothing is typed, else what has the letters", () => {
    expect(names("")).toEqual(["parts.format", "metrics.two words"])
    expect(names("rew")).toEqual(["reward"])
    expect(names("reward < 1 and (form")).toEqual(["parts.format"])
    expect(names('metrics."two wo')).toEqual(["metrics.two words"])
    expect(names("nothing")).toEqual([])
  })

  test("a long list is cut, and says how long it is", () => {
    const many = Array.from({ length: 40 }, (_, at) => field(`parts.p${at}`))
    expect(offered("", many)).toEqual({ fields: many.slice(0, MAX_OFFERED), all: 40 })
  })

  test.each([
    ["", "parts.format "],
    ["form", "parts.format "],
    ["reward < 1", "reward < 1 and parts.format "],
    ["reward < 1 and ", "reward < 1 and parts.format "],
    ["not (form", "not (parts.format "],
  ])("%j becomes %j", (draft, whole) => expect(completed(draft, field("parts.format"))).toBe(whole))
})

describe("the seat that figures are of", () => {
  const seat = (name: string, trainable: boolean) => ({ seat: name, trainable }) as Trajectory

  test.each([
    [[seat("customer", false), seat("seller", true)], "seller"],
    [[seat("first", true), seat("second", true)], "first"],
    [[seat("user", false)], "user"],
    [[], undefined],
  ])("is the first that learns", (trajectories, name) => {
    expect(mainSeat({ trajectories })?.seat).toBe(name)
  })
})

describe("the graph of a seat's conversations", () => {
  const turns = [null, 0, 0, 0, 3, null].map(parent => ({ parent }) as Turn)

  test("the first continuation keeps the lane, every further one and every new context gets its own", () => {
    expect(lanes(turns)).toEqual([0, 0, 1, 2, 2, 3])
  })

  test("a conversation is the path to its last turn", () => {
    expect(conversationEnds(turns)).toEqual([1, 2, 4, 5])
    expect(pathTo(turns, 4)).toEqual([0, 3, 4])
  })
})

describe("frames of a grid game", () => {
  const moment = (frame: number, action: string | null, level = 0) => ({
    frame,
    level,
    state: "NOT_FINISHED",
    action,
    actions: 0,
  })
  const walk = [
    moment(0, null),
    moment(1, "up"),
    moment(2, "left"),
    moment(0, "reset"),
    moment(2, "right"),
    moment(2, "act"),
    moment(3, "up", 1),
    moment(4, "up", 1),
  ]

  test("stand by their distance from the first one; resets and what changes nothing are no ways", () => {
    const { nodes, edges, columns, rows } = frameGraph(walk, 0)
    expect(nodes.map(({ frame, column }) => [frame, column])).toEqual([
      [0, 0],
      [1, 1],
      [2, 1],
    ])
    expect(edges.map(({ from, to, actions }) => [from, to, ...actions])).toEqual([
      [0, 1, "up"],
      [1, 2, "left"],
      [0, 2, "right"],
    ])
    expect([columns, rows]).toEqual([2, 2])
  })

  test("are those of one level, and no more than asked for", () => {
    expect(frameGraph(walk, 1).nodes.map(({ frame }) => frame)).toEqual([3, 4])
    expect(frameGraph(walk, 0, 2).nodes).toHaveLength(2)
    expect(frameGraph([], 0)).toEqual({ nodes: [], edges: [], columns: 0, rows: 0 })
  })
})

describe("texts are shown as they are", () => {
  const odd = [
    "\u001b]0;hidden\u0007",
    "\u001b]8;;https://example.org\u001b\\link\u001b]8;;\u001b\\",
    "\u001bP1$r hidden\u001b\\",
    "\u001b_hidden\u001b\\",
    "\u001b[31mred\u001b[0m",
    "\u001b[8mconcealed\u001b[28m",
    "\u001b[2K",
    "\r\n",
    "  two blanks\t",
    "\u202e\u200b\u{e0041}\ud83d",
    "<b>&amp;</b> :heart: \u{1f600} e\u0301",
  ]

  /** What the pieces were made of. */
  const original = (text: string) =>
    pieces(text)
      .map(piece => {
        if (piece.kind === "text") return piece.text
        const character = String.fromCodePoint(Number.parseInt((piece.title ?? "").slice(2), 16))
        return character === "\u001b" ? `${character}${piece.text.slice(3)}` : character
      })
      .join("")

  test("nothing is left out", () => {
    let state = 1
    const draw = (below: number) => {
      state = (state * 48271) % 2147483647
      return state % below
    }
    for (let round = 0; round < 2000; round++) {
      const parts = Array.from({ length: 1 + draw(6) }, () =>
        draw(2) ? (odd[draw(odd.length)] ?? "") : String.fromCodePoint(draw(0x3000)),
      )
      expect(original(parts.join(""))).toBe(parts.join(""))
    }
    expect(original("x".repeat(1_000_000))).toHaveLength(1_000_000)
  })

  test("one line has no line end, keeps blanks and says that it is cut", () => {
    expect(line("a  b\r\n\tc")).toBe("a  b\u27e8CR\u27e9\\n\\tc")
    expect(line("x".repeat(201))).toBe(`${"x".repeat(200)}\u2026`)
  })

  test("reasoning that the server cut says so", () => {
    const shown = renderToStaticMarkup(
      createElement(Message, { message: { role: "assistant", content: "", reasoning: "hm", reasoning_cut: 40_000 } }),
    )
    expect(shown).toContain(`Cut: the first 2 of ${count(40_000)} characters.`)
  })
})
