"""Ready-made environments, each listed by `wander list`."""
