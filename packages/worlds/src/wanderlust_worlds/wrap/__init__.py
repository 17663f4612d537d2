"""Worlds as environments: one agent or a team, verified, with noise, distractions and branches."""
