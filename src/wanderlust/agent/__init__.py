"""A live seat of an episode: its turns, its conversations, its limits, and the play that all seats share."""

from wanderlust.agent.agent import Activity, Agent, current_activity, release_conversation, track

__all__ = ["Activity", "Agent", "current_activity", "release_conversation", "track"]
