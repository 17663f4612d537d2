"""The way in and the way to look: the command line."""
