"""A reasoner, as one run over the data sets of reasoning-gym: `wander train --preset reasoner`.

1. Sets whose questions and answers fit are surveyed; some are held out, family by family, before anything is trained.
2. The base answers questions of every set. Sets that it always answers right are left out.
3. SFT on right answers to the other sets' questions teaches the form. Sums of two numbers are worked out in columns.
4. The policy answers each question several times; those that it gets right now and then are kept.
5. RL on these, all sets mixed. Signal, entropy, divergence and length are monitored.
6. The held-out sets are put to the base, after SFT and after RL.
7. Continual training: RL on half of the sets, on the other half, and on the first half again.

Every stage is a folder of its own, and the same call goes on where an earlier one was stopped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from wanderlust.errors import WanderlustError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.statistics import Estimate, estimate, paired_difference
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, FRESH_POLICY, begin_with_settings
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.mixture import ENVIRONMENT_KEY
from wanderlust.training.checkpoint import START_CHECKPOINT
from wanderlust.training.config import TrainConfig
from wanderlust.training.finetune import finetune
from wanderlust.training.result import TrainResult
from wanderlust.training.train import train
from wanderlust.types import Rollout, Task
from wanderlust_reasoning.reasoner_config import ReasonerConfig, reasoner_folder
from wanderlust_reasoning.reasoner_figures import (
    answer_is_right,
    by_set,
    held_out_sets,
    monitored,
    of_sets,
    right_answer,
    right_by_task,
)
from wanderlust_reasoning.reasoner_report import (
    EXAMS,
    PAGE_FILE,
    PICTURE_FILE,
    REPORT_FILE,
    ContinualRow,
    ReasonerReport,
    draw_reasoner,
)
from wanderlust_reasoning.reasoner_sets import (
    BRIEF_RULES,
    THINKING_RULES,
    CandidateSet,
    QuestionMix,
    draw_held_out,
    halves,
    survey_sets,
)

SETTINGS_FILE, SETS_FILE = "reasoner.json", "sets.json"


@suspended_loop()
def train_reasoner(
    config: ReasonerConfig | None = None,
    *,
    out: str | Path | None = None,
    concurrency: int = 64,
    workers: int | None = None,
    progress: Logger | bool = True,
) -> ReasonerReport:
    """Make a reasoner and examine it on sets that it never saw; the same call goes on where an earlier one stopped.

    Args:
        config: Everything that the figures depend on.
        out: Folder that is written. Default: `runs/train-reasoner-seedN`.
        concurrency: Answers at once in exams.
        workers: Processes of RL, as `train` takes them.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        Held-out sets before and after with intervals, stability, and forgetting.

    Raises:
        UsageError: when a setting is wrong, or `out` holds another run.

    Example:
        >>> train_reasoner(ReasonerConfig(policy="smollm2")).held_out[0].over_base
    """
    config = config or ReasonerConfig()
    folder = Path(out) if out is not None else reasoner_folder(config)
    body = asdict(config)
    begin_with_settings(folder / SETTINGS_FILE, json.loads(json.dumps(body)), what="run")
    with open_progress(progress) as logger:
        recipe = _Recipe(config=config, folder=folder, concurrency=concurrency, workers=workers, logger=logger)
        return recipe.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """The stages, in order."""

    config: ReasonerConfig
    folder: Path
    concurrency: int
    workers: int | None
    logger: Logger
    failures: dict[str, int] = field(default_factory=dict)
    """Rollouts that an infrastructure failed, by exam; they are in no figure."""

    def run(self) -> ReasonerReport:
        """Every stage that is not finished, then the report."""
        config = self.config
        fitting, left_out = self._survey()
        rates = self._base_rates(fitting)
        left_out |= {name: "the base always answers it right" for name, rate in rates.items() if rate == 1}
        held_out, training = draw_held_out(
            [one for one in fitting if one.name not in left_out], config.held_out, seed=config.draw_seed
        )
        for_sft, for_rl = self._questions(training)
        base, start = self._imitate(for_sft)
        kept = self._keep(for_rl, start)
        filtered = len(kept) >= config.rl_config.tasks_per_step
        chosen = kept if filtered else [task.id for task in for_rl]
        trained = self._train(training, start, name="rl", chosen=chosen, config=config.rl_config)
        exam = self._mix(held_out, size=config.exam)
        answers = {
            name: self._examine(exam, player, exam.each("eval", config.exam), name=name.replace(" ", "-"))
            for name, player in zip(EXAMS, (base, start, trained.policy_folder), strict=True)
        }
        continual, forgetting = self._continual(training, start, chosen)
        report = ReasonerReport(
            path=self.folder,
            student=trained.path,
            policy=config.policy,
            left_out=left_out,
            base_rates=rates,
            training=[one.name for one in training],
            questions=len(for_rl),
            kept=len(kept),
            filtered=filtered,
            held_out=held_out_sets(held_out, answers),
            stability=tuple(monitored(trained.path, config.rl_config)),
            continual=continual,
            forgetting=forgetting,
            failures=self.failures,
        )
        write_whole(self.folder / PAGE_FILE, report.page())
        draw_reasoner(report, self.folder / PICTURE_FILE)
        write_whole(self.folder / REPORT_FILE, json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n")
        return report

    def _survey(self) -> tuple[list[CandidateSet], dict[str, str]]:
        """The sets that fit and why others do not, kept in a file."""
        file = self.folder / SETS_FILE
        if not file.is_file():
            self._log("survey of the sets")
            fitting, left_out = survey_sets(
                self.config.datasets,
                level=self.config.level,
                max_question_chars=self.config.max_question_chars,
                max_answer_chars=self.config.max_answer_chars,
            )
            body = {"fitting": [asdict(one) for one in fitting], "left_out": left_out}
            write_whole(file, json.dumps(body, indent=1) + "\n")
        stored = json.loads(file.read_text(encoding="utf-8"))
        return [CandidateSet(**one) for one in stored["fitting"]], dict(stored["left_out"])

    def _base_rates(self, sets: Sequence[CandidateSet]) -> dict[str, float]:
        """Share of right answers of the base by set, sampled; a fresh model has none yet, and is not asked."""
        if self.config.policy == FRESH_POLICY:
            return {}
        count = self.config.rate_questions
        mix = self._mix(sets, size=count)
        rollouts = self._play(
            mix,
            self.config.policy,
            mix.each("train", count),
            name="base-rates",
            temperature=1.0,
            seed=self.config.draw_seed,
        )
        return {name: fmean(map(answer_is_right, own)) for name, own in by_set(rollouts).items()}

    def _mix(self, sets: Sequence[CandidateSet], *, size: int, kept: Sequence[str] | None = None) -> QuestionMix:
        rules = THINKING_RULES if self.config.thinks else BRIEF_RULES
        return QuestionMix(sets, size=size, seed=self.config.draw_seed, rules=rules, kept=kept)

    def _questions(self, sets: Sequence[CandidateSet]) -> tuple[list[Task], list[Task]]:
        """Those of SFT, and those of RL."""
        count = self.config.questions
        first = self._mix(sets, size=2 * count).each("train", 2 * count)
        places: Counter[str] = Counter()
        halved: tuple[list[Task], list[Task]] = ([], [])
        for task in first:
            name = str(task.info[ENVIRONMENT_KEY])
            halved[places[name] >= count].append(task)
            places[name] += 1
        return halved

    def _imitate(self, tasks: Sequence[Task]) -> tuple[Path | str, Path]:
        """The base, and the policy after SFT on right answers."""
        self._log("SFT on right answers")
        rows = [
            {
                "messages": [
                    *({"role": one.role, "content": one.content} for one in task.prompt),
                    {"role": "assistant", "content": right_answer(task, thinks=self.config.thinks)},
                ]
            }
            for task in tasks
        ]
        path, config = self.folder / "sft", self.config
        imitated = finetune(rows, config.policy, out=path, progress=self.logger, **config.sft_settings)
        untrained = path / CHECKPOINTS_FOLDER / START_CHECKPOINT
        return untrained if config.policy == FRESH_POLICY else config.policy, imitated.policy_folder

    def _keep(self, tasks: Sequence[Task], policy: Path) -> list[str]:
        """Ids of the questions that the policy answers right now and then; all without a filter."""
        samples = self.config.difficulty_samples
        if not samples:
            return [task.id for task in tasks]
        names = {str(task.info[ENVIRONMENT_KEY]) for task in tasks}
        sets = [one for one in self._survey()[0] if one.name in names]
        rollouts = self._play(
            self._mix(sets, size=2 * self.config.questions),
            policy,
            tasks,
            name="difficulty",
            temperature=1.0,
            seed=self.config.seed,
            samples=samples,
        )
        right: dict[str, list[bool]] = {}
        for one in rollouts:
            right.setdefault(one.task.id, []).append(answer_is_right(one))
        return [task.id for task in tasks if len({*right.get(task.id, ())}) == 2]

    def _train(
        self, sets: Sequence[CandidateSet], start: Path, *, name: str, chosen: Sequence[str], config: TrainConfig
    ) -> TrainResult:
        self._log(f"RL: {name}")
        env = self._mix(sets, size=2 * self.config.questions, kept=chosen)
        return train(env, start, config=config, out=self.folder / name, workers=self.workers, progress=self.logger)

    def _continual(
        self, sets: Sequence[CandidateSet], start: Path, chosen: Sequence[str]
    ) -> tuple[tuple[ContinualRow, ...], Estimate | None]:
        """RL on half of the sets, the other half and the first again, with new questions of both after each."""
        config = self.config
        if not config.continual_steps:
            return (), None
        parts = halves(sets, seed=config.draw_seed)
        steps = config.rl_config.replace(steps=config.continual_steps, eval_every=config.continual_steps, eval_tasks=1)
        policy, rows, first_half = start, list[ContinualRow](), list[dict[str, list[float]]]()
        for phase, (label, part) in enumerate((("start", None), ("1: A", 0), ("2: B", 1), ("3: A", 0))):
            if part is not None:
                own = of_sets(chosen, parts[part])
                policy = self._train(
                    parts[part], policy, name=f"continual-{phase}", chosen=own, config=steps
                ).policy_folder
            rewards = [self._half(parts[n], policy, name=f"continual-{phase}-{'AB'[n]}") for n in (0, 1)]
            first_half.append(rewards[0])
            first, second = (estimate(own.values()) for own in rewards)
            rows.append(ContinualRow(phase=label, first=first, second=second))
        return tuple(rows), paired_difference(first_half[2], first_half[1])

    def _half(self, sets: Sequence[CandidateSet], policy: Path, *, name: str) -> dict[str, list[float]]:
        """Right answers to questions of the split `eval`, by question."""
        each = -(-self.config.continual_exam // len(sets))
        mix = self._mix(sets, size=2 * self.config.questions)
        return right_by_task(
            self._examine(mix, policy, mix.each("eval", each)[: self.config.continual_exam], name=name)
        )

    def _examine(self, env: QuestionMix, policy: Path | str, tasks: Sequence[Task], *, name: str) -> list[Rollout]:
        """Greedy answers, which no seed changes: all seeds' exams are the same evaluation."""
        return self._play(env, policy, tasks, name=f"exam-{name}", temperature=0.0, seed=self.config.draw_seed)

    def _play(
        self,
        env: QuestionMix,
        policy: Path | str,
        tasks: Sequence[Task],
        *,
        name: str,
        temperature: float,
        seed: int,
        samples: int = 1,
    ) -> list[Rollout]:
        """The scored rollouts of an evaluation, which is kept in a folder; failed ones are in no figure."""
        self._log(name)
        options = PolicyOptions(temperature=temperature, max_tokens=self.config.rl_config.max_tokens, seed=seed)
        out = self.folder / "exams" / name
        report = evaluate_sync(
            env,
            resolve_policy(str(policy), env, options).policy,
            tasks=tasks,
            samples=samples,
            seed=seed,
            out=out,
            concurrency=self.concurrency,
            progress=self.logger,
        )
        if report.failed:
            self.failures[name] = report.failed
        with load_run(out) as run:
            scored = [one for one in run.rollouts if one.trajectory.score is not None]
        if not scored:
            raise WanderlustError(f"{out}: no rollout could be scored: wander show {out} says why")
        return scored

    def _log(self, line: str) -> None:
        if isinstance(self.logger, ProgressLogger):
            self.logger.log_line(f"stage: {line}")
