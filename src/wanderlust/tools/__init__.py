"""Hands: what an agent can call. Python functions, MCP servers, and how calls are made and answered."""
