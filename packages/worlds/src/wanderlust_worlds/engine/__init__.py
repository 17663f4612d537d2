"""The simulator: apps, a clock, a heap of events, scenarios, and the log that replays them."""
