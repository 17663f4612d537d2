"""Reflective prompt evolution (GEPA, arXiv 2507.19457) over any environment, by the package `gepa`.

The package searches: it draws a parent from the Pareto front, has a reflecting policy write a new text from rollouts on
a minibatch, keeps a text that earns more there, and measures it on the tasks of the front. Here are the rollouts, the
answers of the reflecting policy, and the held-out comparison. All are stored by what they depend on, and a search of
one seed always asks for the same: the same call goes on where it was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError, one_line, printable, writing
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import Estimate, estimate
from wanderlust.policies.resolve import open_policies
from wanderlust.runner.engine import run_blocking, suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress
from wanderlust.runner.terminal import Table
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import EVALUATION_STAGE, RUNS_FOLDER, begin_with_settings
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.instructed import Instructed
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Policy, Rollout, Status, Task, user

with needs_extra("gepa"):
    import gepa

SETTINGS_FILE, REPORT_FILE, BEST_FILE = "optimize.json", "report.json", "best.txt"
SYSTEM = "system"
"""Name of the part that evolves."""
MAX_SHOWN_CHARS = 2000
"""Of a message that is shown to the reflecting policy."""
MAX_TEXT_CHARS = 8000
"""Of a system text; a longer one earns nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionConfig:
    """How long is searched, and on which tasks."""

    system: str = ""
    """The text to begin with. Empty: the environment's own."""
    iterations: int = 20
    """Texts that are proposed."""
    minibatch: int = 4
    """Training tasks that a proposal is made from, and accepted by."""
    pareto: int = 24
    """Training tasks of the front; the best text is chosen by their mean."""
    held_out: int = 200
    """Tasks of the split `eval` on which the first and the best text are compared, at most."""
    perfect: float = 1.0
    """A minibatch whose rewards all reach this teaches nothing, and asks for no new text."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "minibatch", "pareto", "held_out"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, and must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A system text, and what it earns."""

    number: int
    parent: int | None
    text: str
    reward: float
    """Mean on the tasks of the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEvolution:
    """What the search came to."""

    path: Path
    candidates: tuple[Candidate, ...]
    """The first text, then those that were accepted."""
    iterations: int
    before: Estimate
    """Held-out reward of the first text."""
    after: Estimate
    """Held-out reward of the best text."""
    difference: Estimate
    """Paired by task."""
    rollouts: int
    """Played in all."""

    @property
    def best(self) -> Candidate:
        """The text with the highest mean on the front; of equal ones the first."""
        return max(self.candidates, key=lambda one: one.reward)

    @property
    def verdict(self) -> str:
        """Whether a better text was found, in one sentence."""
        if self.best.number == 0:
            return "No text was better than the first one."
        low, high = self.difference.low, self.difference.high
        clear = low is not None and high is not None and not low <= 0 <= high
        what = ("better" if self.difference.value > 0 else "worse") if clear else "not shown to differ"
        return f"The best text against the first: {self.difference} held-out reward, {what}."

    def table(self) -> Table:
        """Held-out rewards of the first and the best text."""
        accepted = len(self.candidates) - 1
        title = f"{self.iterations} iterations, {accepted} texts accepted, {self.rollouts:,} rollouts"
        table = Table("text", "front", "held-out reward", title=title, title_justify="left")
        table.add_row("the first", f"{self.candidates[0].reward:.3f}", str(self.before))
        table.add_row(f"the best (number {self.best.number})", f"{self.best.reward:.3f}", str(self.after))
        return table

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self) | {"path": str(self.path), "best": asdict(self.best), "verdict": self.verdict}

    def __str__(self) -> str:
        return f"{render_text(self.table())}\n{self.verdict}"

    def _repr_html_(self) -> str:
        return render_html(self.table())


@suspended_loop()
def optimize_prompt(
    env: Environment | str,
    policy: Policy,
    reflector: Policy,
    *,
    config: EvolutionConfig | None = None,
    out: str | Path | None = None,
    concurrency: int = 64,
    progress: Logger | bool = True,
) -> PromptEvolution:
    """Evolve the system text of an environment's prompts for a policy, by a policy that reflects on its rollouts.

    The same call goes on where an earlier one was stopped: rollouts and answers are kept in `out`, and the best text in
    `out/best.txt`, which `instructed,file=...,env=NAME` plays.

    Args:
        env: An environment whose tasks have prompts, with the splits `train` and `eval`, or its name.
        policy: Plays the tasks.
        reflector: Writes new texts; may be the same policy.
        config: Everything else that the figures depend on.
        out: Folder that is written. Default: `runs/optimize-ENV-seedN`.
        concurrency: Rollouts at once.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        All accepted texts, and the held-out rewards of the first and the best one.

    Raises:
        UsageError: when an argument is wrong, tasks have no common system text, or `out` holds another search.

    Example:
        >>> optimize_prompt("reasoning-gym", Endpoint(url, model="small"), Endpoint(url, model="large")).best.text
        'Answer with the number alone, ...'
    """
    config = config or EvolutionConfig()
    resolved = resolve_environment(env).env if isinstance(env, str) else env
    folder = Path(out) if out is not None else default_folder(environment_name(env), config)
    if len(resolved.seats) != 1:
        raise UsageError("optimize takes environments with one seat")
    tasks = list(islice(iter_tasks(resolved, "train"), config.pareto + config.iterations * config.minibatch))
    held_out = choose_tasks(iter_tasks(resolved, "eval"), config.held_out)
    if len(tasks) <= config.minibatch or not held_out:
        raise UsageError("the environment needs tasks in the splits train and eval")
    first = (config.system or _common_instruction([*tasks, *held_out])).strip()
    names = [str(getattr(one, "label", type(one).__name__)) for one in (policy, reflector)]
    body = {"env": environment_name(env), "policy": names[0], "reflector": names[1], **asdict(config)}
    begin_with_settings(folder / SETTINGS_FILE, body, what="search")
    with open_progress(progress) as logger:
        half = min(config.pareto, len(tasks) // 2)
        search = _Search(
            env=resolved,
            policy=policy,
            reflector=reflector,
            config=config,
            folder=folder,
            concurrency=concurrency,
            logger=logger,
        )
        return search.run(first, front=tasks[:half], feedback=tasks[half:], held_out=held_out)


def default_folder(env: str, config: EvolutionConfig) -> Path:
    """Where a search in the environment of that name is kept."""
    return RUNS_FOLDER / f"optimize-{env.partition(',')[0].rpartition(':')[2]}-seed{config.seed}"


def _common_instruction(tasks: Sequence[Task]) -> str:
    texts = {next((message.content for message in task.prompt if message.role == "system"), "") for task in tasks}
    if len(texts) > 1:
        raise UsageError(f"the tasks have {len(texts)} different system texts: give one to begin with")
    (text,) = texts
    if not text:
        raise UsageError("the tasks have no system text: give one to begin with")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A search in its folder, and what the package asks of an adapter: `evaluate` and `make_reflective_dataset`."""

    env: Environment
    policy: Policy
    reflector: Policy
    config: EvolutionConfig
    folder: Path
    concurrency: int
    logger: Logger
    played: list[int] = field(default_factory=list)

    propose_new_texts = None
    """The package's own way, by the reflecting policy."""

    def run(
        self, first: str, *, front: Sequence[Task], feedback: Sequence[Task], held_out: Sequence[Task]
    ) -> PromptEvolution:
        """The search, then the held-out comparison."""
        adapter: Any = self
        found = gepa.optimize(
            {SYSTEM: first},
            list(feedback),
            list(front),
            adapter=adapter,
            reflection_lm=self._reflect,
            reflection_minibatch_size=min(self.config.minibatch, len(feedback)),
            perfect_score=self.config.perfect,
            stop_callbacks=self._is_over,
            logger=self,
            seed=self.config.seed,
        )
        candidates = tuple(
            Candidate(number=number, parent=parents[0], text=texts[SYSTEM].strip(), reward=reward)
            for number, (texts, parents, reward) in enumerate(
                zip(found.candidates, found.parents, found.val_aggregate_scores, strict=True)
            )
        )
        best = max(candidates, key=lambda one: one.reward)
        before, after = (self._play(text, held_out) for text in (first, best.text))
        rewards = [{one.task.id: [reward_of(one)] for one in own} for own in (before, after)]
        report = PromptEvolution(
            path=self.folder,
            candidates=candidates,
            iterations=self.config.iterations,
            before=estimate(rewards[0].values()),
            after=estimate(rewards[1].values()),
            difference=compare_rewards(*rewards).difference,
            rollouts=sum(self.played),
        )
        body = json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"
        with writing(self.folder):
            (self.folder / BEST_FILE).write_text(best.text + "\n", encoding="utf-8")
            (self.folder / REPORT_FILE).write_text(body, encoding="utf-8")
        return report

    def evaluate(self, batch: list[Task], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Rewards and rollouts of the tasks with a text; one that is empty or too long earns 0 unplayed."""
        text = candidate[SYSTEM].strip()
        if not 0 < len(text) <= MAX_TEXT_CHARS:
            return gepa.EvaluationBatch(outputs=[None] * len(batch), scores=[0.0] * len(batch), trajectories=[])
        rollouts = self._play(text, batch)
        scores = [reward_of(one) for one in rollouts]
        return gepa.EvaluationBatch(outputs=rollouts, scores=scores, trajectories=rollouts if capture_traces else None)

    def make_reflective_dataset(self, _candidate: dict[str, str], played: Any, _parts: list[str]) -> dict[str, Any]:
        """The rollouts as the reflecting policy reads them."""
        return {SYSTEM: [shown(one) for one in played.trajectories]}

    def log(self, message: str) -> None:
        """What the package says of its search, as a line of progress."""
        if isinstance(self.logger, ProgressLogger):
            self.logger.log_line(one_line(message, 120))

    def _is_over(self, state: Any) -> bool:
        done = state.i + 1
        best = max(state.program_full_scores_val_set)
        self.logger.log_step("optimize", done, of=self.config.iterations, metrics={"reward": best})
        return bool(done >= self.config.iterations)

    def _reflect(self, prompt: Any) -> str:
        """The reflecting policy's answer, asked once: it is kept."""
        file = self.folder / "reflections" / f"{_digest(prompt)}.txt"
        if not file.is_file():
            answer = run_blocking(partial(self._ask, str(prompt), key=f"optimize/{file.stem}"))
            write_whole(file, answer.encode(errors="backslashreplace"))
        return file.read_text(encoding="utf-8")

    async def _ask(self, prompt: str, *, key: str) -> str:
        async with open_policies([self.reflector]):
            return (await self.reflector.complete([user(prompt)], key=key)).message.content

    def _play(self, text: str, tasks: Sequence[Task]) -> list[Rollout]:
        """One rollout of each task with a system text; failed ones are played once more.

        Raises UsageError when one fails again: rewards on other tasks are not comparable.
        """
        folder = self.folder / "rollouts" / _digest([text, [task.id for task in tasks]])
        env = Instructed(self.env, text=text)
        for _ in range(2):
            report = evaluate_sync(
                env,
                self.policy,
                tasks=[env.instructed(task) for task in tasks],
                seed=self.config.seed,
                out=folder,
                concurrency=self.concurrency,
                progress=False,
            )
            if not report.failed:
                break
        else:
            raise UsageError(f"{folder}: {report.failed} rollouts failed ({next(iter(report.errors.values())).first})")
        self.played.append(report.played)
        with load_run(folder) as run:
            rollouts = {group.task.id: group.rollouts[0] for group in run.groups(EVALUATION_STAGE, 0)}
        return [rollouts[task.id] for task in tasks]


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


def reward_of(rollout: Rollout) -> float:
    """The reward of a rollout; 0 where it has none."""
    trajectory = rollout.main_trajectory
    if rollout.status is Status.ERROR or trajectory is None or trajectory.score is None:
        return 0.0
    return trajectory.score.reward


def shown(rollout: Rollout) -> dict[str, str]:
    """A rollout as the reflecting policy reads it: the conversation but the system text, the reward, the answer."""
    trajectory = rollout.main_trajectory
    said = [] if trajectory is None else [m for m in trajectory.messages if m.role != "system"]
    score = None if trajectory is None else trajectory.score
    parts = {} if score is None else {**score.parts, **score.metrics}
    told = ", ".join(f"{name} {value:.3g}" for name, value in parts.items())
    feedback = f"Reward: {reward_of(rollout):.3g}" + (f" ({told})" if told else "")
    return {
        "Conversation": "\n".join(f"{message.role}: {_clipped(message.content)}" for message in said),
        "Feedback": "\n".join([feedback, *_reference(rollout.task)]),
    }


def _reference(task: Task) -> Iterator[str]:
    if isinstance(task.answer, str | int | float) and task.answer != "":
        yield f"Reference answer: {_clipped(str(task.answer))}"


def _clipped(text: str) -> str:
    text = printable(text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]} ..."
