"""Whole experiments as Python functions."""
