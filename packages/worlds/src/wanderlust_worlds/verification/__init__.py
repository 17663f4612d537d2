"""Verdicts on what an agent did in a world, against the oracle's events; checks of arguments, facts and judges."""
