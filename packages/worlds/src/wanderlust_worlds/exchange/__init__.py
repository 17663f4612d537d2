"""Scenarios from elsewhere and for elsewhere: ARE's JSON."""
