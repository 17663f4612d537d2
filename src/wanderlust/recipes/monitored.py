"""The monitors at work: what they begin to find in a step of a run is kept as an event of the run."""

from __future__ import annotations

from collections.abc import Mapping

from wanderlust.recipes.watch import Watch
from wanderlust.rollout.store import RunStore
from wanderlust.rubrics.monitors.facts import Facts, facts
from wanderlust.rubrics.monitors.monitors import Finding, look

STAGE, EVENT = "reinforce", "finding"
"""The stage that is looked at, and the kind of the events."""


class Monitored:
    """A watch that passes on what it is shown, and looks at each step when it is in the store.

    A finding is kept when its monitor did not speak at the step before. Nothing that is learnt depends on it, and a run
    that was gone on with has the same findings.
    """

    def __init__(self, watch: Watch, store: RunStore, *, done: int):
        """`done` steps are in the store already."""
        self.watch, self.store = watch, store
        self.history: list[Facts] = [facts(store.groups(STAGE, step), step=step) for step in range(done)]
        self.speaking = {finding.monitor for finding in look(self.history)}
        kept = [event.body for event in store.events() if event.kind == EVENT]
        self.kept = {(body["monitor"], body["step"]) for body in kept}

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """Pass it on, and look at the step that is over."""
        self.watch.show(stage, step, of=of, figures=figures)
        if stage != STAGE:
            return
        self.history.append(facts(self.store.groups(STAGE, step - 1), step=step - 1))
        found = look(self.history)
        for finding in found:
            if finding.monitor not in self.speaking and (finding.monitor, finding.step) not in self.kept:
                self._keep(finding)
        self.speaking = {finding.monitor for finding in found}

    def _keep(self, finding: Finding) -> None:
        rows = self.store.rollouts({"stage": STAGE, "step": finding.step})
        ids = {(row.group, row.sibling): row.id for row in rows}
        body = {
            "monitor": finding.monitor,
            "step": finding.step,
            "stage": STAGE,
            "text": finding.line,
            "evidence": [ids[place] for place in finding.read if place in ids],
            "figure": None,
        }
        self.store.add_event(EVENT, body)
