"""Simulated lives: people and their records, families of scenarios over them, and players."""
