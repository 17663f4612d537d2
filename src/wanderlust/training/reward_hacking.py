"""The monitors beside a run that learns: what they remember, and what becomes of what they find."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import WanderlustError
from wanderlust.rubrics.monitors import MONITORS, Finding, Monitor, look
from wanderlust.rubrics.rubric import Rubric
from wanderlust.rubrics.step_statistics import Facts, facts
from wanderlust.store.store import RunStore
from wanderlust.training.loggers import Telling, Watch
from wanderlust.types import Group

FINDING = "finding"
"""Kind of the store's events."""
QUIET = 5
"""Steps of silence after which a monitor that speaks again is heard again."""


class Gamed(WanderlustError):
    """A monitor spoke, and the run was to stop then."""


@dataclass(slots=True, kw_only=True)
class Lookout:
    """Shows every step's groups to the monitors, and hears each of them when it begins to speak.

    The memory is a few numbers a step: `state` and `restore` keep all of it, so that a resumed run finds what an
    unbroken one would have found.
    """

    truths: Collection[str] | None = ()
    """The hidden figures that stand for what is wanted; None: all that is recorded."""
    stops: bool = False
    """Whether the run stops at a new finding."""
    monitors: Mapping[str, Monitor] = field(default_factory=lambda: MONITORS)
    history: list[Facts] = field(default_factory=list)
    spoke: dict[str, int] = field(default_factory=dict)
    """The last step at which each monitor spoke."""

    @classmethod
    def on(cls, env: Environment, *, stops: bool = False) -> Lookout:
        """With the hidden parts of the environment's rubric."""
        rubric = env.rubric
        parts = rubric.parts if isinstance(rubric, Rubric) else ()
        return cls(truths=[part.name for part in parts if part.role == "hidden"], stops=stops)

    def look(self, groups: Sequence[Group], step: int) -> list[Finding]:
        """What monitors say that were silent until now."""
        self.history.append(facts(groups, step=step, truths=self.truths))
        said = look(self.history, self.monitors)
        new = [one for one in said if step - self.spoke.get(one.monitor, -QUIET - 1) > QUIET]
        self.spoke.update((one.monitor, step) for one in said)
        return new

    @property
    def speaking(self) -> int:
        """How many monitors spoke of the newest step."""
        newest = self.history[-1].step if self.history else -1
        return sum(step == newest for step in self.spoke.values())

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back."""
        return {"history": msgspec.to_builtins(self.history), "spoke": dict(self.spoke)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember exactly that."""
        self.history = msgspec.convert(state["history"], list[Facts])
        self.spoke = dict(state["spoke"])


def report(found: Sequence[Finding], store: RunStore, watch: Watch, *, stage: str) -> None:
    """Keep findings as events of the run, with the rollouts to read by their numbers in the store; tell each."""
    for one in found:
        rows = store.rollouts({"stage": stage, "step": one.step})
        ids = {(row.group, row.sibling): row.id for row in rows}
        read = [ids[place] for place in one.read if place in ids]
        place = {"stage": stage, "step": one.step, "monitor": one.monitor}
        store.add_event(FINDING, {**place, "text": one.line, "evidence": read, "figure": one.figure})
        if isinstance(watch, Telling):
            told = f"; read rollouts {', '.join(map(str, read))}" if read else ""
            watch.tell(f"{stage} {one.step}: {one.monitor}: {one.line}{told}")


def gamed(found: Sequence[Finding]) -> Gamed:
    """What is raised when a run stops at findings."""
    said = "; ".join(f"{one.monitor}: {one.line}" for one in found)
    return Gamed(f"step {found[0].step} looks like gaming, so the run stopped there: {said}")
