"""Families of scenarios over our own universes: each file's functions under `@family` are found by looking."""
