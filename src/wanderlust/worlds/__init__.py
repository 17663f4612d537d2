"""Simulated places that change by themselves: clock, events, apps, notifications, scenarios."""
