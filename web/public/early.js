// Before anything is drawn: the look that was chosen, so that a dark page never flashes white.
try {
  const look = localStorage.getItem("studio-theme")
  if (look === "light" || look === "dark") document.documentElement.dataset.theme = look
} catch {
  // Storage may be forbidden; the system's look holds then.
}

// While the page's code is still on its way: what its screen will ask for first. Another question than the screen's
// own costs nothing but the head start.
if (document.querySelector("base").dataset.studio === "live") {
  const [root, key, what, id] = location.pathname.split("/").slice(1)
  const query = new URLSearchParams(location.search)
  const asked = name => encodeURIComponent(query.get(name) ?? "")
  const of = {
    undefined: `/api/runs/${key}`,
    rollouts: `/api/runs/${key}/rollouts?filter=${asked("filter")}&sort=${asked("sort") || "-id"}&offset=0&limit=200`,
    rollout: `/api/runs/${key}/rollouts/${id}`,
  }[what]
  const path = root === "" ? "/api/runs" : root === "run" && key ? of : undefined
  if (path) {
    window.early = { path, answer: fetch(path, { credentials: "same-origin" }) }
    window.early.answer.catch(() => {}) // whoever asks is told
  }
}
