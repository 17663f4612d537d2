"""The command `wander world`: each module parses arguments, calls the functions of worlds and prints."""
