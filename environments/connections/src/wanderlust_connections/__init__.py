"""Puzzles of hidden groups, two rewards with a known flaw, and the laboratory that trains a model on them."""
