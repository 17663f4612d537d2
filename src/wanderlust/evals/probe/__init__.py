"""Probes of a reward before training: degenerate policies that should earn nothing."""
