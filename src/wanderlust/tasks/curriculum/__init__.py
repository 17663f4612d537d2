"""Which tasks are played next. A curriculum owns the choice, and learns from whole groups of one policy version."""

from wanderlust.tasks.curriculum.base import Curriculum, NothingToChoose, Rating, Telling
from wanderlust.tasks.curriculum.uniform import Stream

__all__ = ["Curriculum", "NothingToChoose", "Rating", "Stream", "Telling"]
