"""Whole runs as one-screen Python functions."""
