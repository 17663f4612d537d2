"""Training data from any environment: sources, teachers, filters, copies, and what each stage did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust_data.ablation import RecipeComparison as RecipeComparison
    from wanderlust_data.ablation import RecipeResult as RecipeResult
    from wanderlust_data.ablation import ablate_data as ablate_data
    from wanderlust_data.ablation import compare_teachers as compare_teachers
    from wanderlust_data.build import build_data as build_data
    from wanderlust_data.card import Card as Card
    from wanderlust_data.card import StageCount as StageCount
    from wanderlust_data.card import TeacherCount as TeacherCount
    from wanderlust_data.distillation import DistilConfig as DistilConfig
    from wanderlust_data.distillation import distil as distil
    from wanderlust_data.distillation_report import Distillation as Distillation
    from wanderlust_data.distillation_report import Side as Side
    from wanderlust_data.duplicates import Match as Match
    from wanderlust_data.duplicates import find_contaminated as find_contaminated
    from wanderlust_data.duplicates import find_duplicates as find_duplicates
    from wanderlust_data.filters import find_mislabelled as find_mislabelled
    from wanderlust_data.plan import AnswerFilters as AnswerFilters
    from wanderlust_data.plan import Budget as Budget
    from wanderlust_data.plan import DataPlan as DataPlan
    from wanderlust_data.plan import DifficultyFilter as DifficultyFilter
    from wanderlust_data.plan import HeldOut as HeldOut
    from wanderlust_data.plan import QuestionFilters as QuestionFilters
    from wanderlust_data.plan import QuestionJudge as QuestionJudge
    from wanderlust_data.plan import Source as Source
    from wanderlust_data.plan import Student as Student
    from wanderlust_data.plan import Teacher as Teacher
    from wanderlust_data.plan import Variant as Variant
    from wanderlust_data.plan import Writing as Writing
    from wanderlust_data.plan import read_plan as read_plan
    from wanderlust_data.tasks import BuiltTasks as BuiltTasks

_MODULES = {
    "plan": "DataPlan Source Writing QuestionFilters DifficultyFilter QuestionJudge HeldOut Teacher"
    " AnswerFilters Budget Student Variant read_plan",
    "build": "build_data",
    "card": "Card StageCount TeacherCount",
    "ablation": "RecipeComparison RecipeResult ablate_data compare_teachers",
    "distillation": "DistilConfig distil",
    "distillation_report": "Distillation Side",
    "duplicates": "Match find_duplicates find_contaminated",
    "filters": "find_mislabelled",
    "tasks": "BuiltTasks",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
