"""Artefacts that carry their proof: a statement, what was made for it, a checker, and a validator of the statement."""
