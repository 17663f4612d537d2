"""Two published hacks of rewards, rebuilt small: each environment has a flawed reward and a mended one.

`wander lab` trains on the one until it is hacked, then on the other; docs/hacking.md tells what came of it.
"""
