"""The same rollouts in other toolkits, each run by a Python of its own; nothing here is imported by the bars."""
