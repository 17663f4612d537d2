"""A policy that is a language model in this process. Needs the extra `train`."""

from wanderlust.policies.local.engine import Engine
from wanderlust.policies.local.explorer import Explorer, Suggest
from wanderlust.policies.local.policy import GIVEN, LocalPolicy
from wanderlust.policies.local.sampling import Sampling

__all__ = ["GIVEN", "Engine", "Explorer", "LocalPolicy", "Sampling", "Suggest"]
