"""The studio's server: run stores over HTTP, for one person's browser on this machine. Needs `studio`."""
