"""Algorithms: each annotates a Group with credit and names the loss that goes with it."""
