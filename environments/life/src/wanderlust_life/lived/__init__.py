"""Lives that are lived through: what happens is decided first, written to all apps, and kept as facts with records."""
