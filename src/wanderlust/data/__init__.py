"""Training data from any environment: sources, teachers, filters, copies, and what each stage did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust.data.ablation import RecipeComparison as RecipeComparison
    from wanderlust.data.ablation import RecipeResult as RecipeResult
    from wanderlust.data.ablation import ablate_data as ablate_data
    from wanderlust.data.ablation import compare_teachers as compare_teachers
    from wanderlust.data.build import build_data as build_data
    from wanderlust.data.card import Card as Card
    from wanderlust.data.card import StageCount as StageCount
    from wanderlust.data.card import TeacherCount as TeacherCount
    from wanderlust.data.distillation import DistilConfig as DistilConfig
    from wanderlust.data.distillation import distil as distil
    from wanderlust.data.distillation_report import Distillation as Distillation
    from wanderlust.data.distillation_report import Side as Side
    from wanderlust.data.duplicates import Match as Match
    from wanderlust.data.duplicates import find_contaminated as find_contaminated
    from wanderlust.data.duplicates import find_duplicates as find_duplicates
    from wanderlust.data.filters import find_mislabelled as find_mislabelled
    from wanderlust.data.plan import AnswerFilters as AnswerFilters
    from wanderlust.data.plan import Budget as Budget
    from wanderlust.data.plan import DataPlan as DataPlan
    from wanderlust.data.plan import DifficultyFilter as DifficultyFilter
    from wanderlust.data.plan import HeldOut as HeldOut
    from wanderlust.data.plan import QuestionFilters as QuestionFilters
    from wanderlust.data.plan import QuestionJudge as QuestionJudge
    from wanderlust.data.plan import Source as Source
    from wanderlust.data.plan import Student as Student
    from wanderlust.data.plan import Teacher as Teacher
    from wanderlust.data.plan import Variant as Variant
    from wanderlust.data.plan import Writing as Writing
    from wanderlust.data.plan import read_plan as read_plan
    from wanderlust.data.tasks import BuiltTasks as BuiltTasks

_MODULES = {
    "data.plan": "DataPlan Source Writing QuestionFilters DifficultyFilter QuestionJudge HeldOut Teacher"
    " AnswerFilters Budget Student Variant read_plan",
    "data.build": "build_data",
    "data.card": "Card StageCount TeacherCount",
    "data.ablation": "RecipeComparison RecipeResult ablate_data compare_teachers",
    "data.distillation": "DistilConfig distil",
    "data.distillation_report": "Distillation Side",
    "data.duplicates": "Match find_duplicates find_contaminated",
    "data.filters": "find_mislabelled",
    "data.tasks": "BuiltTasks",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
