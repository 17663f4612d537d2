import { readFileSync } from "node:fs"
import react from "@vitejs/plugin-react"
import { defineConfig, type Plugin } from "vite"

const SHIPPED = ["react", "react-dom", "scheduler", "uplot", "@fontsource-variable/ibm-plex-sans", "@fontsource/ibm-plex-mono"]

/** The licences of what the page contains, beside the page. */
function licences(): Plugin {
  const text = () =>
    SHIPPED.map(name => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8")}`).join("\n\n----\n\n")
  return {
    name: "licences",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "licences.txt", source: text() })
    },
  }
}

export default defineConfig({
  base: "./",
  plugins: [react(), licences()],
  build: {
    outDir: "../src/wanderlust/studio/page",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { "/api": "http://127.0.0.1:7654" } },
})
