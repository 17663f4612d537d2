"""Wanderlust: engineer the environments in which language models learn to act."""

__version__ = "0.1.0"
