"""Who acts: an endpoint, a local model, a script, a recording, a person; chat templates and tool formats."""
