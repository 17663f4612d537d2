"""What the studio shows of worlds: a rollout in time."""
