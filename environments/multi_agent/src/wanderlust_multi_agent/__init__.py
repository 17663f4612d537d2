"""A clerk sells a ticket to a simulated user, and both seats are played by language models."""
