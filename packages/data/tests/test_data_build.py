"""Plans are checked, built, resumed and written with the counts of each stage; what fails is one line."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wanderlust import Completion, Scripted, SingleTurnEnvironment, Task, assistant, evaluate_sync, user
from wanderlust.cli.main import main
from wanderlust.environments.calculator import Calculator
from wanderlust.errors import PolicyFailure, StoreError, UsageError
from wanderlust.rubrics.answers import stated_answer
from wanderlust.rubrics.rewards import exact
from wanderlust.rubrics.rubric import Rubric
from wanderlust.store.run import load_run
from wanderlust.training.conversations import parse_row
from wanderlust.types import Message, ToolCall
from wanderlust_data import (
    AnswerFilters,
    Budget,
    BuiltTasks,
    DataPlan,
    DifficultyFilter,
    HeldOut,
    QuestionFilters,
    QuestionJudge,
    Source,
    Teacher,
    Writing,
    build_data,
    read_plan,
)
from wanderlust_data.build import _rating
from wanderlust_data.questions import parse_written, same_answer


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def sums(tmp_path):
    rows = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(20, 30) for b in (101, 207)]
    return write_rows(tmp_path / "sums.jsonl", rows)


def adder(messages, rng):
    a, b = (int(word.strip("?")) for word in messages[-1].content.split() if word.strip("?").isdigit())
    return f"{a} and {b} make\nAnswer: {a + b + (rng.random() < 0.4)}"


def plan_of(sums, **changes):
    return DataPlan(
        **{"sources": (Source(file=sums),), "teachers": (Teacher(name="adder", policy=Scripted(adder), samples=4),)}
        | changes
    )


def rows_in(folder, name="sft"):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_rows_have_their_lineage_and_go_straight_into_training(sums, tmp_path):
    card = build_data(plan_of(sums, answers=AnswerFilters(min_reward=1)), tmp_path / "out", progress=False)
    rows = rows_in(tmp_path / "out")
    assert [stage.stage for stage in card.stages] == ["sources", "duplicates", "answers", "budget"]
    assert card.files == {"sft.jsonl": len(rows), "dpo.jsonl": len(rows_in(tmp_path / "out", "dpo")), "rl.jsonl": 20}
    assert card.stages[-2].removed["min_reward"] == 80 - len(rows)
    assert {"task", "source", "teacher", "seed", "sample", "reward", "filters"} <= rows[0].keys()
    assert all(row["reward"] == 1 and row["filters"][-1] == "min_reward" for row in rows)
    assert [parse_row("here", row, "sft").key for row in rows] == [f"task {row['task']}" for row in rows]
    pairs = rows_in(tmp_path / "out", "dpo")
    assert pairs
    assert all(pair["rewards"] == [1.0, 0.0] and parse_row("here", pair, "dpo") for pair in pairs)
    assert "| answers | rows | 80 |" in (tmp_path / "out/card.md").read_text()
    assert load_run(tmp_path / "out/samples/teacher-adder-sums").report["played"] == 80


def test_the_kept_questions_are_an_environment(sums, tmp_path):
    plan = plan_of(
        sums, questions=QuestionFilters(difficulty=DifficultyFilter(policy=Scripted(adder), samples=2, low=0.5))
    )
    build_data(plan, tmp_path / "out", progress=False)
    env = BuiltTasks(str(tmp_path / "out"))
    assert 5 < len([*env.tasks()]) < 20
    assert evaluate_sync(env, Scripted(adder), split="train", samples=8, progress=False).reward.value > 0.3
    assert len([*BuiltTasks(str(tmp_path / "out"), high=0.5).tasks()]) < len([*env.tasks()])


def test_turns_with_tools_are_kept(tmp_path):
    def adds(messages, rng):
        if messages[-1].role == "tool":
            return messages[-1].content
        numbers = [int(one) for one in re.findall(r"\d+", messages[-1].content)]
        return Message(
            "assistant", "", tool_calls=(ToolCall(id="1", name="add", arguments=json.dumps({"numbers": numbers})),)
        )

    teachers = (Teacher(name="adds", policy=Scripted(adds)),)
    plan = DataPlan(sources=(Source(env=Calculator(), count=6),), teachers=teachers, formats=("sft",))
    build_data(plan, tmp_path / "out", progress=False)
    row = rows_in(tmp_path / "out")[0]
    assert {"assistant", "tool"} <= {message["role"] for message in row["messages"]}
    assert row["tools"][0]["function"]["name"]
    assert any(message.tool_calls for message in parse_row("here", row, "sft").conversations[0].messages)


def test_a_built_plan_is_the_same_again_with_any_number_of_answers_at_once(sums, tmp_path):
    plan = plan_of(sums, mix=12, budget=Budget(rows=30))
    for name, concurrency in (("one", 1), ("many", 50)):
        build_data(plan, tmp_path / name, concurrency=concurrency, progress=False)
    for file in ("sft.jsonl", "dpo.jsonl", "rl.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "many" / file).read_bytes()
    assert len(rows_in(tmp_path / "one")) == 30
    again = build_data(plan, tmp_path / "one", progress=False)
    assert again.stages == build_data(plan, tmp_path / "many", progress=False).stages
    with pytest.raises(UsageError, match="holds another plan's data: name another folder, or remove it"):
        build_data(plan_of(sums), tmp_path / "one", progress=False)


PLAN = """
seed = 3
[[sources]]
name = "sums"
env = "slow.py:env"
count = 40
[[teachers]]
name = "t"
policy = "slow.py:teacher"
samples = 5
"""
SLOW = """
import asyncio
from wanderlust import Rubric, SingleTurnEnvironment, Task, exact, user
env = SingleTurnEnvironment([Task(id=str(n), prompt=(user(f"Say {n * 137}"),), answer=str(n * 137)) for n in range(40)],
    rubric=Rubric(exact()))
async def teacher(messages, rng):
    await asyncio.sleep(0.02)
    return messages[-1].content.split()[1] if rng.random() < 0.7 else "no"
"""


def test_a_killed_build_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-m", "wanderlust.cli.main", "data", "build", "plan.toml", "--concurrency", "2", "--out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "whole"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    store = tmp_path / "cut/samples/teacher-t-sums/rollouts.db"
    killed = subprocess.Popen(
        [*command, "cut"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not store.exists():
        time.sleep(0.02)
    time.sleep(0.6)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "cut/card.json").exists()
    subprocess.run([*command, "cut"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for file in ("sft.jsonl", "dpo.jsonl", "rl.jsonl"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


class Unreliable:
    """Fails at every other call, as a server under load does."""

    def __init__(self, share: int = 2):
        self.calls, self.share = 0, share

    async def complete(self, messages, tools=(), *, key=""):
        self.calls += 1
        if self.calls % self.share == 0:
            raise PolicyFailure("HTTP 500")
        return Completion(message=assistant("right"))


def test_a_teacher_that_fails_half_the_time_is_asked_again_and_never_scored_for_it(tmp_path):
    tasks = [Task(id=str(n), prompt=(user(f"question {n} of many"),), answer="right") for n in range(16)]
    env = SingleTurnEnvironment(tasks, rubric=Rubric(exact()))
    plan = DataPlan(sources=(Source(env=env),), duplicates=(), teachers=(Teacher(name="x", policy=Unreliable()),))
    card = build_data(plan, tmp_path / "out", concurrency=1, progress=False)
    (teacher,) = card.teachers
    assert (teacher.reward, teacher.failed, len(rows_in(tmp_path / "out"))) == (
        1.0,
        16 - len(rows_in(tmp_path / "out")),
        16 - teacher.failed,
    )
    assert teacher.failed <= 2
    assert bool(card.notes) == bool(teacher.failed)
    never = DataPlan(sources=(Source(env=env),), teachers=(Teacher(name="x", policy=Unreliable(1)),))
    with pytest.raises(UsageError, match=r"all 16 rollouts failed \(.*HTTP 500"):
        build_data(never, tmp_path / "never", progress=False)


def test_majority_length_and_language_filter_answers(sums, tmp_path):
    filters = AnswerFilters(majority=0.5, max_chars=60, language="en")
    teachers = (Teacher(name="adder", policy=Scripted(adder), samples=15),)
    build_data(plan_of(sums, answers=filters, teachers=teachers), tmp_path / "out", progress=False)
    rows = rows_in(tmp_path / "out")
    assert rows
    assert sum(row["reward"] for row in rows) > 0.8 * len(rows)
    with pytest.raises(UsageError, match=r"answers.language is 'xx', and must be one of en, de"):
        build_data(plan_of(sums, answers=AnswerFilters(language="xx")), tmp_path / "other", progress=False)


def test_labels_that_the_teachers_contradict_are_left_out(tmp_path):
    rows = [{"prompt": f"What is {a} + 203?", "answer": str(a + 203 + (a % 5 == 0))} for a in range(30, 70)]
    source = Source(file=write_rows(tmp_path / "labels.jsonl", rows), verifier="number")
    teachers = (Teacher(name="adder", policy=Scripted(adder), samples=9),)
    filters = QuestionFilters(label_agreement=0.5)
    card = build_data(
        DataPlan(sources=(source,), questions=filters, teachers=teachers), tmp_path / "out", progress=False
    )
    assert next(stage for stage in card.stages if stage.stage == "labels").removed["contradicted"] >= 7


def test_copies_held_out_questions_and_conflicting_labels_are_counted(tmp_path):
    rows = [{"prompt": f"Add {a} to {b} please.", "answer": str(a + b)} for a in range(30, 50) for b in (411, 523)]
    held_out = write_rows(tmp_path / "exam.jsonl", rows[:3])
    rows.append({"prompt": "add 45 to 523, please!", "answer": "1"})
    plan = DataPlan(
        sources=(Source(file=write_rows(tmp_path / "rows.jsonl", rows)),),
        held_out=(HeldOut(name="exam", file=held_out),),
    )
    card = build_data(plan, tmp_path / "out", progress=False)
    assert [(one.stage, one.removed) for one in card.stages[1:3]] == [
        ("duplicates", {"exact": 1}),
        ("held out: exam", {"exact": 3}),
    ]
    assert card.label_conflicts == 1
    assert rows_in(tmp_path / "out")[0]["messages"][-1]["role"] == "assistant"


def test_a_filter_that_leaves_nothing_says_what_every_stage_left(sums, tmp_path):
    filters = QuestionFilters(min_chars=3, difficulty=DifficultyFilter(policy=Scripted(["no"]), samples=1, low=0.9))
    line = (
        "nothing is left: sources left 20 questions, length left 20 questions, duplicates left 20 questions, difficulty"
    )
    with pytest.raises(UsageError, match=f"{line} left 0 questions; change the stage 'difficulty', or read more"):
        build_data(plan_of(sums, questions=filters), tmp_path / "out", progress=False)


def test_a_judge_rates_questions(sums, tmp_path):
    def judge(messages, rng):
        return "8" if "+ 101" in messages[-1].content else "This is unclear. 2"

    filters = QuestionFilters(judge=QuestionJudge(policy=Scripted(judge), least=5))
    card = build_data(plan_of(sums, questions=filters), tmp_path / "out", progress=False)
    assert next(stage.removed for stage in card.stages if stage.stage == "judge") == {"rated low": 10}


def test_a_policy_writes_questions_and_a_solver_verifies_them(tmp_path):
    (tmp_path / "a.md").write_text("Lake Zug is 198 metres deep.")
    (tmp_path / "b.md").write_text("Lake Thun is 217 metres deep.")

    def writer(messages, rng):
        words = messages[0].content.split()
        depth = words[3] if rng.random() < 0.7 else "100"
        return f'Here: {{"question": "How deep is lake {words[1]} ({rng.random():.5f})?", "answer": "{depth}"}}'

    def solver(messages, rng):
        return "Answer: " + ("198" if "Zug" in messages[0].content else "217")

    writing = Writing(
        policy=Scripted(writer), documents=str(tmp_path / "*.md"), per_document=6, solver=Scripted(solver), votes=2
    )
    plan = DataPlan(sources=(Source(name="lakes", writing=writing),), duplicates=(), formats=("sft", "rl"))
    card = build_data(plan, tmp_path / "out", progress=False)
    answers = {row["messages"][-1]["content"] for row in rows_in(tmp_path / "out")}
    assert answers == {"198", "217"}
    assert 4 <= card.stages[0].left < 12


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("srces = 1", "there is no srces; did you mean sources"),
        ("sources = []", "there are no sources: write [[sources]] with env, file or writing"),
        ("[[sources]]\nenv = 'tictactoe'\nfile = 'x.jsonl'", "sources[0]: needs one of env, file and writing"),
        ("[[sources]]\nenv = 'tictactoe'\nweight = -1", "sources[0]: weight is -1.0, and must be above 0"),
        ("[[sources]]\nenv = 'tictactoe'\ncount = 'x'", "sources[0].count is 'x', and must be a whole number"),
        ("duplicates = ['near']", "duplicates[0] is 'near', and must be one of 'exact', 'fuzzy', 'slots'"),
        ("sources = 3", "sources must be a list"),
        ("[[sources]]\nenv = 'a'\n[[sources]]\nenv = 'a'", "two sources are called 'a': give one another name"),
        ("[[sources]]\nenv = 'a'\n[[teachers]]\nsamples = 2", "teachers[0]: needs a policy"),
        ("[[sources]]\nenv = 'a'\n[[variants]]\nname = 'v'\nwithout_sources = ['b']", "variant 'v': there is no 'b'"),
        ("[[sources]]\nenv = 'a'\n[[variants]]\nwithout_sources = ['b']", "variants[0] needs name"),
        ("ablate = ['taste']", "ablate[0] is 'taste', and must be one of"),
        ("= 3", "is no TOML: "),
    ],
)
def test_a_wrong_plan_is_one_line_with_file_and_key(text, line, tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_plan(path)
    assert str(path) in str(refused.value)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_sources_without_questions_are_refused(tmp_path):
    empty = write_rows(tmp_path / "empty.jsonl", [])
    for source in (
        Source(file=empty),
        Source(env=SingleTurnEnvironment([])),
        Source(writing=Writing(policy=Scripted(["x"]), documents=str(tmp_path / "*.none"))),
    ):
        with pytest.raises(UsageError, match=r"the source '.*' is empty"):
            build_data(DataPlan(sources=(source,)), tmp_path / "out" / source.label, progress=False)


def test_a_file_that_changed_is_refused(sums, tmp_path):
    build_data(plan_of(sums), tmp_path / "out", progress=False)
    Path(sums).write_text(Path(sums).read_text() + '{"prompt": "What is 1 + 2?", "answer": "3"}\n')
    with pytest.raises(UsageError, match=r"sums.jsonl has changed since .*out was begun"):
        build_data(plan_of(sums), tmp_path / "out", progress=False)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(sums, tmp_path):
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from wanderlust.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "main(['data', 'build', 'plan.toml', '--out', 'out'])\n"
    )
    (tmp_path / "plan.toml").write_text(f'[[sources]]\nfile = "{sums}"\n')
    for size in (200, 3000):
        done = subprocess.run(
            [sys.executable, "-c", code.format(size=size)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.count("\n") == 1
        assert "cannot be written: File too large" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", code.format(size=resource.RLIM_INFINITY)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(rows_in(tmp_path / "out")) == 20


def test_the_command_says_what_it_did_and_gives_json(sums, tmp_path, capsys):
    (tmp_path / "plan.toml").write_text(f'[[sources]]\nfile = "{sums}"\n')
    words = ["data", "build", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        assert ended.value.code == 0
        output = capsys.readouterr().out
    assert json.loads(output)["files"]["sft.jsonl"] == 20
    with pytest.raises(SystemExit) as ended:
        main(["data", "bake", str(tmp_path / "plan.toml")])
    assert ended.value.code == 2
    assert "wander data has no command 'bake'; there are build, ablate, teachers" in capsys.readouterr().err


def test_a_damaged_card_is_named(sums, tmp_path):
    build_data(plan_of(sums), tmp_path / "out", progress=False)
    (tmp_path / "out/card.json").write_text("{")
    with pytest.raises(StoreError, match=r"card.json is no card: .*; remove it to write it again"):
        build_data(plan_of(sums), tmp_path / "out", progress=False)


@pytest.mark.parametrize(
    ("said", "rating"),
    [
        ("8", 8),
        ("It is clear.\n7/10", 7),
        ("Rating: 6 out of 10.", 6),
        ("3 of 10", 3),
        ("10", 10),
        ("1,000", 10),
        ("none", 0),
    ],
)
def test_a_rating_is_read_with_its_scale_or_without(said, rating):
    assert _rating(said) == rating


def test_final_answers_and_written_questions_are_read():
    assert [stated_answer(text) for text in ("so\n**x**\nThe answer is: 12.", r"thus \boxed{7}", "")] == ["12", "7", ""]
    for said, right in (
        ("so \\boxed{\\frac{3}{2}}", True),
        ("The answer is $1.50.", True),
        ("It is 3.\n1.5 litres", True),
        ("2", False),
    ):
        assert same_answer(stated_answer(said), "1.5", number=True) == right
    assert parse_written('{"question": " ", "answer": 3}') is None
    assert parse_written("no") is None
