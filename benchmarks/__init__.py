"""Bars: what the project promises, measured afresh by `make bars`."""
