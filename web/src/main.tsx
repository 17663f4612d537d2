import { createRoot } from "react-dom/client"
import { App } from "./App"
import { EXPORTED, readFiles } from "./api/client"
import "./styles/fonts.css"
import "./styles/tokens.css"
import "./styles/base.css"
import "./styles/parts.css"
import "./styles/text.css"
import "./styles/table.css"

const root = document.getElementById("root")
if (EXPORTED) await readFiles()
if (root) createRoot(root).render(<App />)
