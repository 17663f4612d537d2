"""Environments by name, and which of their tasks are played: data sets, mixtures, selections, curricula."""
