"""Which tasks are played next. A curriculum owns the choice, and learns from whole groups of one policy version."""

from wanderlust.train.curriculum.contract import Curriculum, NothingToChoose, Rating, Telling
from wanderlust.train.curriculum.stream import Stream

__all__ = ["Curriculum", "NothingToChoose", "Rating", "Stream", "Telling"]
