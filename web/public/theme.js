// Before anything is drawn: the look that was chosen, so that a dark page never flashes white.
try {
  const look = localStorage.getItem("studio-theme")
  if (look === "light" || look === "dark") document.documentElement.dataset.theme = look
} catch {
  // Storage may be forbidden; the system's look holds then.
}
