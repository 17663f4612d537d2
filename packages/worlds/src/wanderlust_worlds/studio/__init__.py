"""What the studio shows of worlds: a rollout in time, and drafts of scenarios to review."""
