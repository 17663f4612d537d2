import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { brotliCompressSync, gzipSync } from "node:zlib"
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
              test: /node_modules\/(react|react-dom|scheduler)\/|src\/(api\/(?!files|world)|parts\/(?!words)|screens\/(Runs|RunHead|Rollouts?|Conversation|ScoreCard)\.|[a-z]+\.ts$|[A-Z][a-z]+\.tsx$)/,
            },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:7654" } },
})
