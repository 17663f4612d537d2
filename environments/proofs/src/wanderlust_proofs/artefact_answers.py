"""Tasks whose answer is an artefact: each answer is checked, each statement validated, and both are in the trace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wanderlust.environment import Episode, SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.types import Policy, Task
from wanderlust_proofs.contract import Checker, Finding, Statement
from wanderlust_proofs.statement_judge import Meaning, StatementJudge

_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


class ArtefactAnswers(SingleTurnEnvironment):
    """One question, one artefact: the last fenced block of the answer, or all of it.

    A task's `info["statement"]` has the fields of a Statement, and `task.answer` is an artefact of it. The reward is 1
    where the checker accepts the artefact and the validator has no finding. `state` has both: `verdict`, `findings`;
    and `artefact`, which is what `wander verify` reads.
    """

    origin = ""
    """Name of the environment in stored artefacts."""
    statement_judge: StatementJudge | None = None
    """Says whether statements say what their words say; the verdict is in `state["meaning"]`, and takes no reward."""

    def __init__(self, checker: Checker):
        """Answers are checked by `checker`."""
        self.checker = checker
        self._findings: dict[str, list[Finding]] = {}
        self._meanings: dict[str, Meaning] = {}
        super().__init__(rubric=Rubric(self.accepted))

    def oracle(self, task: Task) -> Policy:
        """Writes the task's own artefact."""
        return Scripted([task.answer])

    def read_artefact(self, content: str) -> str:
        """The artefact of an answer: its last fenced block, or all of it."""
        fenced = _FENCE.findall(content)
        return (fenced[-1] if fenced else content).strip()

    async def run(self, episode: Episode) -> None:
        """One answer, checked; what the validator says of a statement is kept."""
        episode.state.update(verdict=None, findings={}, artefact=None)
        statement = Statement(**episode.task.info["statement"])
        content = ""
        with episode.playing():
            content = (await episode.agent.act(*episode.task.prompt)).content
        artefact = self.read_artefact(content)
        verdict = await asyncio.to_thread(self.checker.check, statement, artefact)
        key = repr(sorted(asdict(statement).items()))
        findings = self._findings.get(key)
        if findings is None:
            findings = await asyncio.to_thread(self.checker.validate, statement)
            if all(one.name != "undecided" for one in findings):
                self._findings[key] = findings
        episode.state["verdict"] = asdict(verdict)
        episode.state["findings"] = {one.name: one.why for one in findings}
        if self.statement_judge is not None:
            meaning = self._meanings.get(key) or await self.statement_judge.meaning(statement)
            if meaning.agreement is not None:
                self._meanings[key] = meaning
            episode.state["meaning"] = asdict(meaning) | {"finding": meaning.finding and meaning.finding.name}
        if verdict.valid and not findings:
            origin = {"environment": self.origin, "task": episode.task.id}
            made = {"statement": asdict(statement), "artefact": artefact, "checker": verdict.checker, "origin": origin}
            episode.state["artefact"] = made
        episode.state["feedback"] = verdict.reason or "; ".join(one.why for one in findings) or "it is right"

    def accepted(self, state: Mapping[str, Any]) -> RewardResult:
        """1 when the checker accepts the artefact and the validator has no finding; counts what else was said."""
        counts = {"undecided": float(state["verdict"]["undecided"]), "findings": float(len(state["findings"]))}
        if meaning := state.get("meaning"):
            counts["disagrees"] = float(meaning["finding"] is not None)
            counts["meaning_unknown"] = float(meaning["agreement"] is None)
        return RewardResult(value=float(state["artefact"] is not None), metrics=counts)
