import { createRoot } from "react-dom/client"
import { App } from "./App"
import { EXPORTED, readFiles } from "./api/client"
import "./styles/fonts.css"
import "./styles/tokens.css"
import "./styles/base.css"
import "./styles/parts.css"
import "./styles/text.css"
import "./styles/table.css"
import "./styles/run.css"
import "./styles/rollouts.css"
import "./styles/rollout.css"
import "./styles/tokens.css"
import "./styles/group.css"
import "./styles/compare.css"
import "./styles/world.css"
import "./styles/apps.css"
import "./styles/play.css"
import "./styles/markdown.css"
import "./styles/result.css"

const root = document.getElementById("root")
if (EXPORTED) await readFiles()
if (root) createRoot(root).render(<App />)
