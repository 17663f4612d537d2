"""The command `wander`: each module parses arguments, calls the public functions and prints."""
