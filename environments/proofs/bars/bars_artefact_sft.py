"""Short Metamath proofs after longer SFT alone: the control of `artefact_learning`, for which it has to be run first.

SFT of three times the steps takes half again as much processor time as SFT and RL there, where a step of RL takes that
of 25 of SFT. It costs more than a run, so it has one seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, reward, sampled

from bars_artefact_learning import RUNS, SHORT_PROOFS, TASKS
from wanderlust.errors import UsageError
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.warmup import fresh_model_after_sft
from wanderlust_proofs.brief_proofs import BriefProofs

CONTROL = SHORT_PROOFS.replace(sft_steps=3 * SHORT_PROOFS.sft_steps, seed=SEEDS[0])


def bars() -> Iterator[Bar]:
    """What SFT and RL gain over longer SFT."""
    learnt = RUNS / f"short-proofs-seed{CONTROL.seed}" / "checkpoints" / "rl"
    if not learnt.exists():
        raise UsageError(f"there is no {learnt}: measure artefact_learning first")
    path = RUNS / f"short-proofs-control-seed{CONTROL.seed}"
    if not path.exists():
        save_pretrained(path, *fresh_model_after_sft(CONTROL, logger=NullLogger()))
    env = BriefProofs(eval_size=TASKS)
    longer, after = (
        fmean(map(reward, sampled(one, env, env.tasks("eval"), max_tokens=CONTROL.max_tokens)))
        for one in (path, learnt)
    )
    yield Bar(
        name=f"short proofs of {TASKS} held-out statements: gained over longer SFT, one seed",
        figure=after - longer,
        bar=0.15,
        aim=0.4,
        better="higher",
        note=f"{longer:.2f} after {CONTROL.sft_steps:,} steps of SFT, {after:.2f} after SFT and RL",
    )
