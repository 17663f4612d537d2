"""A scripted player that plans calls of tools from a request."""
