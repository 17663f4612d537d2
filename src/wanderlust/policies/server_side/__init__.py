"""Code that runs inside a vLLM server; it imports nothing of ours."""
