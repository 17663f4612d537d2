"""A policy that is a language model in this process. Needs the extra `train`."""

from wanderlust.policies.base import Sampling
from wanderlust.policies.local.engine import Engine
from wanderlust.policies.local.policy import Explorer, LocalPolicy, Suggest
from wanderlust.policies.token_policy import GIVEN

__all__ = ["GIVEN", "Engine", "Explorer", "LocalPolicy", "Sampling", "Suggest"]
