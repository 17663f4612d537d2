"""A policy that is a language model in this process. Needs the extra `train`."""

from wanderlust.policies.local.engine import Engine
from wanderlust.policies.local.explorer import Explorer, Suggest
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.sampling import Sampling
from wanderlust.policies.tokens import GIVEN

__all__ = ["GIVEN", "Engine", "Explorer", "LocalPolicy", "Sampling", "Suggest"]
