"""Hands: what an agent can call."""
