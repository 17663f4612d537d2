"""Worlds of Gymnasium as text, with a finite set of actions."""
