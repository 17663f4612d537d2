"""Plays episodes, one or a hundred thousand: the engine, its progress, pause and resume, Ray."""
