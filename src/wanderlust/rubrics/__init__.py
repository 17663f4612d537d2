"""Judgement: rewards with names and weights."""
