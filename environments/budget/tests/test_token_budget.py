"""Token budgets that a policy is told: the line, the rewards of length, and what cannot be kept."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode, Limits, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.resolve import make_player
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.lengths import completion_tokens, context_tokens, count_pieces, turns
from wanderlust.rubrics.rewards import exact
from wanderlust.rubrics.rubric import Reward, Rubric, gate, held_out
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.store.provenance import provenance_of
from wanderlust.tasks.mixture import Mixture
from wanderlust.tasks.registry import load_environment
from wanderlust.testing import check_environment
from wanderlust.types import Completion, Message, Score, Status, Task, assistant, system, user
from wanderlust_budget.token_budget import EFFORT_PRICES, HELD_OUT_EVERY, TOLD_LINES, TokenBudget, tell

TARGET = "wanderlust_budget.token_budget:TokenBudget"
QUESTIONS = [Task(id=f"sum-{n}", prompt=(system("Add."), user(f"{n} + 1 = ?")), answer=str(n + 1)) for n in range(60)]


class Sums(SingleTurnEnvironment):
    """Adds one; the teacher says how."""

    def __init__(self, rubric: Rubric | None = None, limits: Limits | None = None):
        super().__init__(QUESTIONS, rubric=rubric or Rubric(exact()), limits=limits)
        self.players = {"teacher": lambda: Scripted(think), "mirror": lambda: Scripted(lambda m, _: m[-1].content)}

    def oracle(self, task: Task) -> Scripted:
        return Scripted([str(task.answer)])


def think(messages: Any, _: Any) -> str:
    number = int(messages[-1].content.split()[0])
    return f"<think>{number}+1={number + 1} so it is</think> {number + 1}"


class Twice(Environment):
    """Two turns without a prompt: one letter is shown, then another."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"twice-{letter}") for letter in "ab"]

    async def run(self, episode: Episode) -> None:
        for shown in "ac":
            await episode.agent.act(user(shown))
        episode.reward("right", 1.0)


class Writes:
    """Answers with a text, and says how many tokens that took."""

    def __init__(self, text: str, tokens: int):
        self.text, self.tokens = text, tokens

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        usage = {"prompt_tokens": 10, "completion_tokens": self.tokens}
        return Completion(message=assistant(self.text), usage=usage)


def score(env: Environment, policy: Any, task: Task | None = None) -> Score:
    played = asyncio.run(rollout(env, task or next(iter(env.tasks())), policy))
    assert played.error is None
    assert played.trajectory.score is not None
    return played.trajectory.score


def one(kind: str, **more: Any) -> tuple[TokenBudget, Task]:
    env = TokenBudget(Sums(), kind=kind, min_tokens=40, max_tokens=40, **more)  # type: ignore[arg-type]
    return env, next(iter(env.tasks()))


@pytest.mark.parametrize(
    ("kind", "line"), [("exact", "Think for 40 tokens."), ("at_most", "Think for at most 40 tokens.")]
)
def test_the_prompt_ends_with_the_budget(kind: str, line: str) -> None:
    _, task = one(kind)
    assert task.prompt == (system("Add."), user(f"0 + 1 = ?\n\n{line}"))
    assert task.info["budget"] == 40


def test_budgets_of_evaluation_are_never_trained_on_and_stay_what_they_are() -> None:
    env = TokenBudget(Sums(), kind="exact", min_tokens=10, max_tokens=50)
    train, held_out = ([task.info["budget"] for task in env.tasks(split)] for split in ("train", "eval"))
    assert all(n % HELD_OUT_EVERY for n in train)
    assert not any(n % HELD_OUT_EVERY for n in held_out)
    assert len({*train}) > 15
    assert [
        task.info["budget"] for task in TokenBudget(Sums(), kind="exact", min_tokens=10, max_tokens=50).tasks()
    ] == train
    other = TokenBudget(Sums(), kind="exact", min_tokens=10, max_tokens=50, budget_seed=1)
    assert [task.info["budget"] for task in other.tasks()] != train


def test_lcpos_rewards() -> None:
    env, task = one("exact", alpha=0.02)
    right = score(env, Writes("1", 30), task)
    assert (right.reward, right.parts) == (
        pytest.approx(0.8),
        {"exact": 1.0, "task_reward": 1.0, "budget_error": 10.0},
    )
    assert (right.metrics["relative_error"], right.metrics["completion_tokens"]) == (0.25, 30.0)
    assert score(env, Writes("2", 45), task).reward == pytest.approx(-0.1)

    env, task = one("at_most", alpha=0.02)
    figures = [score(env, Writes("1", tokens), task) for tokens in (10, 30, 40, 60, 70)]
    assert [f.reward for f in figures] == pytest.approx([1.0, 0.7, 0.5, 0.1, 0.0])
    assert [f.metrics["over_budget"] for f in figures] == [0, 0, 0, 1, 1]
    assert score(env, Writes("2", 10), task).reward == 0.0


def test_alpha_is_lcpos_at_the_largest_budget() -> None:
    env, task = one("exact")
    assert score(env, Writes("1", 80), task).reward == pytest.approx(1 - 1.2)


def test_effort_has_a_price_and_is_what_reports_go_by() -> None:
    env = TokenBudget(Sums(), kind="effort", min_tokens=1, max_tokens=100)
    by_level = {task.info["effort"]: task for task in env.tasks("eval")}
    assert by_level.keys() == EFFORT_PRICES.keys()
    assert env.group_by == "effort"
    for level, task in by_level.items():
        assert task.prompt[-1].content.endswith(f"\n\nEffort: {level}.")
        found = score(env, Writes(task.answer, 20), task)
        assert found.reward == pytest.approx(1 - 0.2 * EFFORT_PRICES[level])


def test_penalties_are_parts_with_their_counts() -> None:
    prices = "completion:0.001 context:0.01 turns:0.1"
    env = TokenBudget(Sums(), kind="none", penalties=prices)
    task = next(iter(env.tasks()))
    assert task == QUESTIONS[0]
    found = score(env, Writes("1", 30), task)
    assert found.reward == pytest.approx(1 - 0.03 - 0.4 - 0.1)
    assert {name: found.parts[name] for name in found.parts if name.endswith("_penalty")} == {
        "completion_penalty": 30.0,
        "context_penalty": 40.0,
        "turns_penalty": 1.0,
    }
    rubric = Rubric(exact(), Reward(completion_tokens, -0.001), Reward(context_tokens, -0.01), Reward(turns, -0.1))
    assert score(Sums(rubric), Writes("1", 30)).reward == pytest.approx(0.47)


def test_without_tokens_pieces_are_counted_and_the_score_says_so() -> None:
    env, task = one("exact", alpha=0.01)
    found = score(env, Scripted(["<think>1 is it</think> 1"]), task)
    assert found.metrics["tokens_unknown"] == 1.0
    assert found.metrics["completion_tokens"] == count_pieces("<think>1 is it</think> 1") == 7


def test_who_has_no_prompt_is_told_first_and_every_seat_is() -> None:
    env = TokenBudget(Twice(), kind="exact", min_tokens=8, max_tokens=8)
    task = next(iter(env.tasks()))
    played = asyncio.run(rollout(env, task, Writes("b", 4)))
    first, second = (turn.observation[-1].content for turn in played.trajectory.turns)
    assert (first, second) == ("a\n\nThink for 8 tokens.", "c")
    assert played.trajectory.score is not None
    assert played.trajectory.score.parts["budget_error"] == 0.0


class OwnContext(Environment):
    """Owns the conversation."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="own")]

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act_with_context([system("s"), user("first")])
        await episode.agent.act_with_context([system("s"), user("first"), said, user("more")])


def test_a_context_of_ones_own_is_told_too_and_goes_on() -> None:
    env = TokenBudget(OwnContext(), kind="exact", min_tokens=8, max_tokens=8)
    played = asyncio.run(rollout(env, env.tasks()[0], Writes("x", 4)))  # type: ignore[index]
    assert played.trajectory.messages[1] == user("first\n\nThink for 8 tokens.")
    assert played.trajectory.is_one_conversation


def test_players_do_not_see_the_budget_and_the_teacher_thinks_about_as_long() -> None:
    env = TokenBudget(Sums(), kind="exact", min_tokens=20, max_tokens=200)
    task = list(env.tasks())[7]
    assert score(env, make_player(env, "mirror"), task).reward < 0
    answers = [
        asyncio.run(make_player(env, "teacher").complete(one.prompt, key=f"{one.id}/0/0/agent")).message.content
        for one in env.tasks()
    ]
    ratios = [count_pieces(a) / one.info["budget"] for a, one in zip(answers, env.tasks(), strict=True)]
    assert max(ratios) <= 1.5
    assert 0.85 < sum(ratios) / len(ratios) < 1.05
    assert all(a.endswith(f"</think> {one.answer}") for a, one in zip(answers, env.tasks(), strict=True))
    assert asyncio.run(check_environment(env, count=2)) == []


def test_rubrics_that_compare_rollouts_keep_doing_so() -> None:
    def longest(completions: list[str]) -> list[float]:
        return [float(len(text) == max(map(len, completions))) for text in completions]

    env = TokenBudget(Sums(Rubric(exact(), Reward(longest, 2.0))), kind="exact", min_tokens=8, max_tokens=8, alpha=0.1)

    async def play() -> list[Score | None]:
        policy = Scripted(lambda m, rng: "1" + "x" * rng.randrange(2, 30))
        async with rollouts(env, [next(iter(env.tasks()))], policy, group_size=4, concurrency=4) as stream:
            return [r.trajectory.score async for group in stream for r in group.rollouts]

    scores = [one for one in asyncio.run(play()) if one is not None]
    assert len(scores) == 4
    assert sorted(one.parts["longest"] for one in scores) == [0.0, 0.0, 0.0, 1.0]
    for one_score in scores:
        parts = one_score.parts
        assert parts["task_reward"] == parts["exact"] + 2 * parts["longest"]
        assert one_score.reward == pytest.approx(parts["task_reward"] - 0.1 * parts["budget_error"])


def test_contributions_sum_up_to_the_reward_and_held_out_parts_stay_known() -> None:
    def short(completion: str) -> float:
        return 0.5

    rubric = Rubric(Reward(exact(), 2.0), gate(short), held_out(lambda completion: 1.0, name="truth"))
    for kind in ("exact", "at_most", "none"):
        env, task = one(kind, alpha=0.02, penalties="turns:0.1")
        env = TokenBudget(Sums(rubric), kind=env.kind, min_tokens=40, max_tokens=40, alpha=0.02, penalties="turns:0.1")
        found = score(env, Writes("1", 30), task)
        assert env.rubric is not None
        shares = env.rubric.contributions(found.parts)  # type: ignore[attr-defined]
        assert sum(shares.values()) == pytest.approx(found.reward)
        assert {"exact", "turns_penalty"} <= shares.keys()
        assert [p.name for p in env.rubric.parts if p.role == "held_out"] == ["truth"]  # type: ignore[attr-defined]
        assert found.metrics["truth"] == 1.0


def test_what_is_recorded_of_a_run_changes_with_the_budget_and_the_environment() -> None:
    def digest(env: Environment) -> str:
        return provenance_of(env, tasks=list(env.tasks("eval"))[:3]).digest

    base = digest(TokenBudget(Sums(), kind="exact", min_tokens=8, max_tokens=8))
    others = [
        TokenBudget(Sums(), kind="exact", min_tokens=8, max_tokens=8, alpha=0.5),
        TokenBudget(Sums(), kind="at_most", min_tokens=8, max_tokens=8),
        TokenBudget(Sums(), kind="exact", min_tokens=9, max_tokens=9),
        TokenBudget(Sums(), kind="exact", min_tokens=8, max_tokens=8, penalties="turns:0.1"),
        TokenBudget(Sums(Rubric(Reward(exact(), 2.0))), kind="exact", min_tokens=8, max_tokens=8),
        Sums(),
    ]
    assert digest(TokenBudget(Sums(), kind="exact", min_tokens=8, max_tokens=8)) == base
    assert base not in map(digest, others)


def test_a_mixture_may_be_under_a_budget_and_a_budget_in_a_mixture() -> None:
    inside = Mixture({TokenBudget(Sums(), kind="exact", min_tokens=8, max_tokens=8): 1, Twice(): 1})
    outside = TokenBudget(Mixture({Sums(): 1, Twice(): 1}), kind="exact", min_tokens=8, max_tokens=8)
    for env in (inside, outside):
        for task in islice(env.tasks(), 6):
            assert asyncio.run(rollout(env, task, Writes("1", 3))).status is Status.DONE


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"min_tokens": 0}, "budgets go from 0 to 4000 tokens"),
        ({"min_tokens": 50, "max_tokens": 20}, "budgets go from 50 to 20 tokens"),
        ({"max_tokens": 2.5}, "whole numbers"),
        ({"kind": "about"}, "one of exact, at_most, effort, none"),
        ({"alpha": 0}, "alpha is 0, and must be a number above 0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"penalties": "words:1"}, "NAME one of completion, context, turns, not words:1"),
        ({"penalties": "turns:-1"}, "not turns:-1"),
        ({"penalties": {"turns": float("inf")}}, "not turns:inf"),
        ({"size": 3}, "no setting 'size' of an environment that is made already"),
    ],
)
def test_what_cannot_be_kept_is_one_line(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        TokenBudget(Sums(), **settings)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_budgets_beyond_the_environments_limits_or_the_policys_answers_are_refused() -> None:
    limits = Limits(max_turns=1, max_episode_tokens=64)
    with pytest.raises(UsageError, match="up to 64 tokens and the environment's max_episode_tokens is 64"):
        TokenBudget(Sums(limits=limits), kind="exact", min_tokens=1, max_tokens=64)
    policy: Any = Writes("1", 3)
    policy.longest_answer = 39
    env = TokenBudget(Sums(limits=Limits(max_turns=1)), kind="exact", min_tokens=40, max_tokens=40)
    played = asyncio.run(rollout(env, next(iter(env.tasks())), policy))
    assert played.status is Status.ERROR
    assert "the budget of sum-0 is 40 tokens and the policy's answers have at most 39" in str(played.error)


def test_names_of_parts_do_not_hide_each_other() -> None:
    def budget_error(completion: str) -> float:
        return 0.0

    env = TokenBudget(Sums(Rubric(budget_error)), kind="exact", min_tokens=8, max_tokens=8)
    played = asyncio.run(rollout(env, next(iter(env.tasks())), Writes("1", 3)))
    assert "has a part 'budget_error' already" in str(played.error)


def test_confidence_is_asked_for_beside_a_budget_or_alone() -> None:
    for kind, line in (("none", ""), ("exact", "\n\nThink for 40 tokens."), ("effort", "Effort: ")):
        _, task = one(kind, ask_confidence=True)
        assert line in task.prompt[-1].content
        assert task.prompt[-1].content.endswith("like <confidence>0.8</confidence>.")
        assert TOLD_LINES.sub("", task.prompt[-1].content) == "0 + 1 = ?"


@pytest.mark.parametrize("text", ["", "Think for 3 tokens.", "x\n\nThink for 12 tokens.\n\n"])
def test_only_the_line_itself_is_taken_away(text: str) -> None:
    (told,) = tell([user(text)], "Think for 40 tokens.")
    assert TOLD_LINES.sub("", told.content) == text
    assert tell([system("s")], "L") == (system("s"), user("L"))
    assert tell([Message("user", "q"), assistant("a")], "L")[0].content == "q\n\nL"


def test_the_command_line_hands_settings_on(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{TARGET},env=tool-call,size=2,kind=exact,min_tokens=24,max_tokens=80"
    env = load_environment(target)
    assert isinstance(env, TokenBudget)
    assert len(list(env.tasks("eval"))) == 4
    with pytest.raises(SystemExit) as ended:
        main(["eval", target, "--policy", "oracle"])
    assert ended.value.code == 0
    assert "relative_error" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["eval", f"{TARGET},env=tool-call,min_tokens=0", "--policy", "oracle"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
