"""The verifier, verified: perturbed oracles are really played, and the verdicts on them counted.

`python -m benchmarks.verifier.confusion [SCENARIOS]` prints the table.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from benchmarks.verifier.lookalikes import make_look_alikes
from benchmarks.verifier.paraphrases import paraphrase_judge
from benchmarks.verifier.perturbations import ALL_PERTURBATIONS as KINDS
from benchmarks.verifier.perturbations import PerfectRun, Perturbation
from benchmarks.verifier.planned_actions import log_of_actions, oracle_actions

from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verdict import Compat, Decision
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.verification.world_judge import verify_with_judge

DEFAULT_SCENARIOS = 60


@dataclass(slots=True)
class Confusion:
    """Verdicts by kind of perturbation."""

    structural: dict[str, Counter[Decision]] = field(default_factory=dict)
    """Without a judge."""
    judged: dict[str, Counter[Decision]] = field(default_factory=dict)
    """With one that knows the paraphrases."""

    @property
    def total(self) -> int:
        """Verdicts, of both sorts."""
        return sum(_count(self.structural, name) + _count(self.judged, name) for name in KINDS)

    @property
    def right(self) -> int:
        """Verdicts that are right: without a judge, `undecided` where it takes one."""
        count = 0
        for name, kind in KINDS.items():
            count += self.structural.get(name, Counter())["undecided" if kind.soft else kind.expected_decision]
            count += self.judged.get(name, Counter())[kind.expected_decision]
        return count

    @property
    def accepted_wrongly(self) -> int:
        """Wrong logs that were accepted."""
        wrong = [name for name, kind in KINDS.items() if kind.expected_decision == "reject"]
        return sum(side.get(name, Counter())["accept"] for name in wrong for side in (self.structural, self.judged))

    @property
    def rejected_wrongly(self) -> int:
        """Right logs that were rejected."""
        good = [name for name, kind in KINDS.items() if kind.expected_decision == "accept"]
        return sum(side.get(name, Counter())["reject"] for name in good for side in (self.structural, self.judged))

    def lines(self) -> Iterator[str]:
        """The table, as text."""
        yield f"{'perturbation':<34} {'right':<7} {'n':>4}   {'structural a/u/r':>18} {'judged a/u/r':>14}"
        for name, kind in KINDS.items():
            sides = [_count_cells(side.get(name, Counter())) for side in (self.structural, self.judged)]
            right = kind.expected_decision + ("*" if kind.soft else "")
            count = _count(self.structural, name)
            yield f"{name:<34} {right:<7} {count:>4}   {sides[0]:>18} {sides[1]:>14}"
        yield f"right: {self.right} of {self.total} ({self.right / max(self.total, 1):.2%})"
        yield f"wrong logs accepted: {self.accepted_wrongly}; right logs rejected: {self.rejected_wrongly}"
        yield "* only a judge can tell: without one, `undecided` is right"


def _count(side: dict[str, Counter[Decision]], name: str) -> int:
    return side.get(name, Counter()).total()


def _count_cells(verdicts: Counter[Decision]) -> str:
    return "/".join(str(verdicts[one]) for one in ("accept", "undecided", "reject"))


async def confusion(
    seeds: Iterable[int], *, compat: Compat = "strict", kinds: Iterable[Perturbation] = ()
) -> Confusion:
    """Play every kind of perturbation of one scenario per seed, and count the verdicts."""
    result, judge, chosen = Confusion(), paraphrase_judge(), tuple(kinds) or tuple(KINDS.values())
    for seed in seeds:
        scenario = make_look_alikes(seed)
        oracle, perfect = Oracle.of(scenario), oracle_actions(scenario)
        for kind in chosen:
            deeds = kind.change(PerfectRun(oracle=oracle, actions=perfect, rng=Random(f"{kind.name}/{seed}")))
            if deeds is None:
                continue
            log = log_of_actions(scenario, deeds)
            alone = verify(log, oracle, compat=compat)
            helped = await verify_with_judge(log, oracle, judge, compat=compat)
            result.structural.setdefault(kind.name, Counter())[alone.decision] += 1
            result.judged.setdefault(kind.name, Counter())[helped.decision] += 1
    return result


def print_confusion() -> None:
    """Print the table for so many scenarios."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_SCENARIOS
    sys.stdout.write("\n".join(asyncio.run(confusion(range(count))).lines()) + "\n")


if __name__ == "__main__":
    print_confusion()
