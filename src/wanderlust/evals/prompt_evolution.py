"""GEPA, reflective prompt evolution (arXiv 2507.19457): a system text is improved by a policy that reads its rollouts.

An iteration takes a parent from the Pareto front, plays a minibatch of training tasks with it, shows rollouts and
rewards to the reflecting policy, and plays the same tasks with the text that it writes. A text that earns more there is
kept, and played on the Pareto tasks. The front has, for each of those, the texts that earn most; a text is drawn as
often as it is among them. Left out of the paper's algorithm: merging, which needs prompts of several parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from rich.table import Table

from wanderlust.environment import Environment
from wanderlust.errors import UsageError, printable
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import Estimate, estimate
from wanderlust.policies.resolve import open_policies
from wanderlust.runner.engine import run_blocking
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import EVALUATION_STAGE, RUNS_FOLDER, begin_with_settings
from wanderlust.tasks.instructed import Instructed, instruction_of
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Policy, Rollout, Status, Task, user

SETTINGS_FILE, STEPS_FILE, REPORT_FILE, BEST_FILE = "optimize.json", "steps.jsonl", "report.json", "best.txt"
MAX_SHOWN_CHARS = 2000
"""Of a message that is shown to the reflecting policy."""
MAX_TEXT_CHARS = 8000
"""Of a system text; a longer one is refused."""
REFLECTION = """You improve the instruction of an assistant. It was given this instruction:

```
{instruction}
```

Here are tasks that it was given, what it answered, and how that was scored:

{examples}

Find out from the scores and the reference answers what a good answer is, and what the assistant did wrong.
Then write a better instruction. Keep what works. State the form of the answer exactly, and every fact that helps.
Write the new instruction, and nothing else, between ``` and ```."""
FENCED = re.compile(r"```(?:[a-z]*\n)?(.*?)(?:```|\Z)", re.DOTALL)


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
    """A minibatch whose rewards all reach this teaches nothing, and asks for no proposal."""
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
    rewards: Mapping[str, float]
    """On the Pareto tasks, by id."""

    @property
    def mean(self) -> float:
        """Over the Pareto tasks."""
        return fmean(self.rewards.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEvolution:
    """What the search came to."""

    path: Path
    candidates: tuple[Candidate, ...]
    """The first text, then those that were accepted."""
    steps: tuple[Mapping[str, Any], ...]
    """Each iteration: parent, rewards of parent and child on the minibatch, what became of it."""
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
        """The text with the highest mean on the Pareto tasks; of equal ones the first."""
        return max(self.candidates, key=lambda one: (one.mean, -one.number))

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
        title = f"{len(self.steps)} iterations, {accepted} texts accepted, {self.rollouts:,} rollouts"
        table = Table("text", "Pareto tasks", "held-out reward", title=title, title_justify="left")
        table.add_row("the first", f"{self.candidates[0].mean:.3f}", str(self.before))
        table.add_row(f"the best (number {self.best.number})", f"{self.best.mean:.3f}", str(self.after))
        return table

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self) | {"path": str(self.path), "best": asdict(self.best), "verdict": self.verdict}

    def __str__(self) -> str:
        return f"{render_text(self.table())}\n{self.verdict}"

    def _repr_html_(self) -> str:
        return render_html(self.table())


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

    The same call goes on where an earlier one was stopped: rollouts, proposals and steps are kept in `out`, and the
    best text in `out/best.txt`, which `instructed,file=...,env=NAME` plays.

    Args:
        env: An environment whose tasks have prompts, with the splits `train` and `eval`, or its name.
        policy: Plays the tasks.
        reflector: Writes new texts; may be the same policy.
        config: Everything else that the figures depend on.
        out: Folder that is written. Default: `runs/optimize-ENV-seedN`.
        concurrency: Rollouts at once.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        All accepted texts, every step, and the held-out rewards of the first and the best text.

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
    first = config.system or _common_instruction([*tasks, *held_out])
    names = [str(getattr(one, "label", type(one).__name__)) for one in (policy, reflector)]
    body = {"env": environment_name(env), "policy": names[0], "reflector": names[1], **asdict(config)}
    begin_with_settings(folder / SETTINGS_FILE, body, what="search")
    with open_progress(progress) as logger:
        search = _Search(
            env=resolved,
            policy=policy,
            reflector=reflector,
            config=config,
            folder=folder,
            front=tasks[: min(config.pareto, len(tasks) // 2)],
            feedback=tasks[min(config.pareto, len(tasks) // 2) :],
            concurrency=concurrency,
            logger=logger,
        )
        return search.run(first, held_out)


def default_folder(env: str, config: EvolutionConfig) -> Path:
    """Where a search in the environment of that name is kept."""
    return RUNS_FOLDER / f"optimize-{env.partition(',')[0].rpartition(':')[2]}-seed{config.seed}"


def _common_instruction(tasks: Sequence[Task]) -> str:
    texts = {instruction_of(task.prompt) for task in tasks}
    if len(texts) > 1:
        raise UsageError(f"the tasks have {len(texts)} different system texts: give one to begin with")
    (text,) = texts
    if not text:
        raise UsageError("the tasks have no system text: give one to begin with")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A search in its folder."""

    env: Environment
    policy: Policy
    reflector: Policy
    config: EvolutionConfig
    folder: Path
    front: Sequence[Task]
    feedback: Sequence[Task]
    concurrency: int
    logger: Logger
    candidates: list[Candidate] = field(default_factory=list)
    played: list[int] = field(default_factory=list)

    def run(self, first: str, held_out: Sequence[Task]) -> PromptEvolution:
        """The iterations that are left, then the held-out comparison."""
        self._accept(first, None)
        steps = []
        for number in range(1, self.config.iterations + 1):
            steps.append(self._step(number))
            done = sum(step["outcome"] == "accepted" for step in steps)
            metrics = {"reward": max(one.mean for one in self.candidates), "accepted": float(done)}
            self.logger.log_step("optimize", number, of=self.config.iterations, metrics=metrics)
        best = max(self.candidates, key=lambda one: (one.mean, -one.number))
        before = self._play("held-out-first", first, held_out)
        after = before if best.number == 0 else self._play("held-out-best", best.text, held_out)
        rewards = [{task: [reward_of(one)] for task, one in own.items()} for own in (before, after)]
        report = PromptEvolution(
            path=self.folder,
            candidates=tuple(self.candidates),
            steps=tuple(steps),
            before=estimate(rewards[0].values()),
            after=estimate(rewards[1].values()),
            difference=compare_rewards(*rewards).difference,
            rollouts=sum(self.played),
        )
        (self.folder / BEST_FILE).write_text(best.text + "\n", encoding="utf-8")
        (self.folder / STEPS_FILE).write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")
        text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"
        (self.folder / REPORT_FILE).write_text(text, encoding="utf-8")
        return report

    def _step(self, number: int) -> dict[str, Any]:
        """One iteration; equal stored answers, equal steps."""
        rng = Random(f"optimize/{self.config.seed}/{number}")
        parent = rng.choices(self.candidates, front_counts(self.candidates))[0]
        tasks = rng.sample(self.feedback, min(self.config.minibatch, len(self.feedback)))
        step: dict[str, Any] = {"iteration": number, "parent": parent.number, "tasks": [task.id for task in tasks]}
        played = self._play(f"{number:03}-parent", parent.text, tasks)
        step["parent_rewards"] = [reward_of(one) for one in played.values()]
        if all(reward >= self.config.perfect for reward in step["parent_rewards"]):
            return step | {"outcome": "nothing to learn from"}
        text = self._proposal(number, parent.text, [*played.values()])
        if not text or len(text) > MAX_TEXT_CHARS or text == parent.text:
            return step | {"outcome": "no new text"}
        child = self._play(f"{number:03}-child", text, tasks)
        step["child_rewards"] = [reward_of(one) for one in child.values()]
        if sum(step["child_rewards"]) <= sum(step["parent_rewards"]):
            return step | {"outcome": "not better"}
        self._accept(text, parent.number)
        return step | {"outcome": "accepted", "candidate": self.candidates[-1].number}

    def _accept(self, text: str, parent: int | None) -> None:
        """Play the Pareto tasks with a text, and keep it."""
        number = len(self.candidates)
        played = self._play(f"text-{number:03}", text, self.front)
        rewards = {task: reward_of(one) for task, one in played.items()}
        self.candidates.append(Candidate(number=number, parent=parent, text=text, rewards=rewards))

    def _proposal(self, number: int, instruction: str, rollouts: Sequence[Rollout]) -> str:
        """What the reflecting policy writes, asked once: the answer is kept."""
        file = self.folder / "proposals" / f"{number:03}.txt"
        if not file.is_file():
            asked = REFLECTION.format(
                instruction=instruction, examples="\n\n".join(shown(one, n + 1) for n, one in enumerate(rollouts))
            )
            answer = run_blocking(partial(self._ask, asked, key=f"optimize/{self.config.seed}/{number}"))
            file.parent.mkdir(exist_ok=True)
            draft = file.with_suffix(".new")
            draft.write_text(answer, encoding="utf-8", errors="replace")
            draft.rename(file)
        return proposed_text(file.read_text(encoding="utf-8"))

    async def _ask(self, prompt: str, *, key: str) -> str:
        async with open_policies([self.reflector]):
            return (await self.reflector.complete([user(prompt)], key=key)).message.content

    def _play(self, name: str, text: str, tasks: Sequence[Task]) -> dict[str, Rollout]:
        """One rollout of each task with a system text, by the task's id; failed ones are played once more.

        Raises UsageError when one fails again: rewards on other tasks are not comparable.
        """
        env, folder = Instructed(self.env, text=text), self.folder / "rollouts" / name
        told = [env.instructed(task) for task in tasks]
        for _ in range(2):
            report = evaluate_sync(
                env,
                self.policy,
                tasks=told,
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
        return {task.id: rollouts[task.id] for task in tasks}


def front_counts(candidates: Sequence[Candidate]) -> list[int]:
    """For each text, the number of Pareto tasks on which none earns more; 0 for a text that another one dominates."""
    best = {task: max(one.rewards[task] for one in candidates) for task in candidates[0].rewards}
    wins = [{task for task, most in best.items() if one.rewards[task] == most} for one in candidates]
    return [len(own) * all(not own < other for other in wins) for own in wins]


def reward_of(rollout: Rollout) -> float:
    """The reward of a rollout; 0 where it has none."""
    trajectory = rollout.main_trajectory
    if rollout.status is Status.ERROR or trajectory is None or trajectory.score is None:
        return 0.0
    return trajectory.score.reward


def proposed_text(answer: str) -> str:
    """The text between the last fences; without any, the whole answer."""
    found: list[str] = FENCED.findall(answer)
    return (found[-1] if found else answer).strip()


def shown(rollout: Rollout, number: int) -> str:
    """A rollout as the reflecting policy reads it: messages but the system text, reward and its parts, the answer."""
    trajectory = rollout.main_trajectory
    assert trajectory is not None
    said = [m for m in trajectory.messages if m.role != "system"]
    lines = [f"## Task {number}", *(f"{message.role}: {_clipped(message.content)}" for message in said)]
    score = trajectory.score
    parts = {} if score is None else {**score.parts, **score.metrics}
    told = ", ".join(f"{name} {value:.3g}" for name, value in parts.items())
    lines.append(f"Reward: {reward_of(rollout):.3g}" + (f" ({told})" if told else ""))
    return "\n".join([*lines, *_reference(rollout.task)])


def _reference(task: Task) -> Iterator[str]:
    if isinstance(task.answer, str | int | float) and task.answer != "":
        yield f"Reference answer: {_clipped(str(task.answer))}"


def _clipped(text: str) -> str:
    text = printable(text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]} ..."
