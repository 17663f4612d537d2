"""Which tasks are played next. A curriculum owns the choice, and learns from whole groups of one policy version."""

from wanderlust.tasks.curriculum.uniform import (
    Curriculum,
    NamedCurriculum,
    NoUsefulTasksWarning,
    SupportsCalibration,
    SupportsMetrics,
    TaskStream,
    TrainsRevisions,
)

__all__ = [
    "Curriculum",
    "NamedCurriculum",
    "NoUsefulTasksWarning",
    "SupportsCalibration",
    "SupportsMetrics",
    "TaskStream",
    "TrainsRevisions",
]
