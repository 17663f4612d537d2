"""Evaluations with intervals: sets, reports, comparisons, scaling, calibration of judges, the reward gate."""
