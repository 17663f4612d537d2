import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { brotliCompressSync, gzipSync } from "node:zlib"
import react from "@vitejs/plugin-react"
import { defineConfig, type Plugin } from "vite"

const FONTS = ["@fontsource-variable/ibm-plex-sans", "@fontsource/ibm-plex-mono"]

/** A package's licence as it came; what its package.json says where it came without one. */
function licence(name: string): string {
  const folder = `node_modules/${name}`
  const file = readdirSync(folder).find(one => /^licen[cs]e/i.test(one))
  if (file) return readFileSync(join(folder, file), "utf8")
  const { license, author } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))
  return `${license}, by ${typeof author === "string" ? author : author?.name}`
}

/** The licences of what the page contains, beside the page. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap(chunk => (chunk.type === "chunk" ? Object.keys(chunk.modules) : []))
      const names = modules.flatMap(id => /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules)/.exec(id)?.[1] ?? [])
      const source = [...new Set([...names, ...FONTS])].sort().map(name => `${name}\n\n${licence(name)}`)
      this.emitFile({ type: "asset", fileName: "licences.txt", source: source.join("\n\n----\n\n") })
    },
  }
}

const OUT = "../src/wanderlust/studio/page"

/** Beside every text its packed forms, so that the server never packs anything itself. */
function packed(): Plugin {
  return {
    name: "packed",
    closeBundle() {
      for (const name of readdirSync(OUT, { recursive: true, encoding: "utf8" })) {
        if (!/\.(js|css|html|svg|txt)$/.test(name)) continue
        const text = readFileSync(join(OUT, name))
        writeFileSync(join(OUT, `${name}.br`), brotliCompressSync(text))
        writeFileSync(join(OUT, `${name}.gz`), gzipSync(text, { level: 9 }))
      }
    },
  }
}

export default defineConfig({
  base: "./",
  plugins: [react(), licences(), packed()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // What the first screens need comes in one file: each one more is waited for.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "studio",
              test: /node_modules\/(react|react-dom|scheduler)\/|src\/(api\/(?!files|world)|parts\/(?!words|Markdown)|screens\/(Runs|RunHead|NotBegun|Rollouts?|Conversation|ScoreCard)\.|[a-z]+\.ts$|[A-Z][a-z]+\.tsx$)/,
            },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:7654" } },
})
