"""The tiers of tests: `make test` runs all but what is marked `proof`, and `make proof` runs that.

A test leaves the default tier with `@pytest.mark.proof("GROUP")`, or some of its cases do with `proof_except`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

PROOF_GROUPS = {
    "seeds": "what holds for a first seed holds for further ones: every algorithm learns, every oracle passes",
    "learning": "further corrections learn from a policy three steps behind, further KL estimators hold a leash",
    "agents": "every foreign agent that is installed plays in a box, and a model is trained through each",
    "containers": "tasks are played in real containers, which are forked and taken back",
    "kills": "runs killed at random moments end in the same weights and report, whatever kind of run it is",
    "resumes": "every algorithm and recipe that was cut ends in the same weights, on any number of workers",
    "architectures": "further architectures of transformers are sampled as a plain forward pass computes them",
    "pages": "the Python on the heaviest pages of the docs runs",
    "cluster": "one command learns on Ray nodes, two trainer processes and two vLLM servers, also when a node leaves",
    "ray": "rollouts go on when a Ray node goes away, and training does with every sampler",
    "rewards": "probes and monitors leave the rewards and runs alone that take longest to examine",
}
"""What each group of `make proof` shows, in the words that it prints first."""


def proof_except(keep: Collection[Any], values: Iterable[Any], *, group: str) -> list[Any]:
    """Parameters of a test, of which only those in `keep` stay in the default tier."""
    slow = pytest.mark.proof(group)
    return [value if value in keep else pytest.param(value, marks=slow) for value in values]
