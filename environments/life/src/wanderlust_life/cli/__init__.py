"""Commands of `wander world` about lives: each module parses arguments, calls the functions of lives and prints."""
