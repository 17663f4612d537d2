"""The way in and the way to look: the command line.

The studio's server: run stores over HTTP, for one person's browser on the same machine. Needs the extra `studio`.
"""
