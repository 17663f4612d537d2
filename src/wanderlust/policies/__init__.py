"""Voices: who acts (an endpoint, a local model, a script, a person)."""
