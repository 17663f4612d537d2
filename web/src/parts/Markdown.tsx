import { Component, type ReactNode } from "react"
import Parsed, { type Components } from "react-markdown"
import gfm from "remark-gfm"
import { pieces } from "./safe"

const SCHEMES = /^(https?:\/\/|mailto:)/i

/** An address that may be opened; others are no links. */
const safe = (address: string): string => (SCHEMES.test(address) ? address : "")

const COMPONENTS: Components = {
  // Below the page's own headings.
  h1: ({ children }) => <h4>{children}</h4>,
  h2: ({ children }) => <h5>{children}</h5>,
  h3: ({ children }) => <h6>{children}</h6>,
  h4: ({ children }) => <h6>{children}</h6>,
  h5: ({ children }) => <h6>{children}</h6>,
  // Opened by a click alone, in a tab that knows nothing of this one.
  a: ({ href, children }) =>
    href ? (
      <a href={href} target="_blank" rel="noopener noreferrer" title={href} className="link">
        {children}
      </a>
    ) : (
      <span className="no-link">{children}</span>
    ),
  // Never loaded: an image says where it was looked at.
  img: ({ alt, src, node }) => (
    <span className="no-image">
      image{alt ? `: ${alt}` : ""} <span className="quiet">{String(node?.properties.title ?? src ?? "")}</span>
    </span>
  ),
  input: ({ checked }) => <input type="checkbox" checked={checked === true} readOnly disabled aria-label="task" />,
}

/** What cannot be seen is named here too, before anything is parsed. */
const named = (text: string): string =>
  pieces(text)
    .map(piece => (piece.kind === "text" ? piece.text : `\u27e8${piece.text}\u27e9`))
    .join("")

/** What the parser cannot bear is shown as it was written. */
class Fallible extends Component<{ instead: ReactNode; children: ReactNode }, { failed: boolean }> {
  state = { failed: false }

  static getDerivedStateFromError() {
    return { failed: true }
  }

  render() {
    return this.state.failed ? this.props.instead : this.props.children
  }
}

/** A text read as markdown: React elements alone, no markup of its own, nothing that is loaded. */
export default function Markdown({ text, plain }: { text: string; plain: ReactNode }) {
  return (
    <Fallible instead={plain}>
      <div className="markdown">
        <Parsed remarkPlugins={[gfm]} urlTransform={safe} components={COMPONENTS}>
          {named(text)}
        </Parsed>
      </div>
    </Fallible>
  )
}
