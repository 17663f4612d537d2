"""Short texts about a subject: constraints that code checks, difference from the other samples, style by a judge."""
