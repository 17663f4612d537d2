"""A policy that is a language model in this process. Needs the extra `train`."""

from wanderlust.policies.base import NOT_SAMPLED, SamplingOptions
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.policy import ExploringStarts, FirstMove, LocalPolicy

__all__ = ["NOT_SAMPLED", "Engine", "ExploringStarts", "FirstMove", "LocalPolicy", "SamplingOptions"]
