"""Verdicts on what an agent did in a world, against the oracle's events; argument checks, facts in texts, and a judge."""
