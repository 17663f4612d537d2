"""What an agent can call: Python functions, MCP servers, sandboxes; how calls are made and answered."""
