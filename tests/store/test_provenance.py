"""Runs know what made them: digests of code, rubric, tasks and settings, and the lock that makes a run again."""

import ast
import gc
import json
import os
import random
import shutil
import subprocess
import sys
from copy import deepcopy
from functools import partial

import pytest
import torch

from project_files import ROOT
from serving import MODEL, TOKENIZER
from wanderlust import (
    Endpoint,
    Environment,
    Limits,
    LocalPolicy,
    Reward,
    Rubric,
    Scripted,
    Task,
    assistant,
    check,
    evaluate_sync,
    load_environment,
    load_run,
    user,
)
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare
from wanderlust.store.provenance import provenance_of, read_lock
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.types import Completion

ENV = """
from pathlib import Path

from {helper} import BONUS
from wanderlust import Environment, Scripted, Task, user

WORDS = (Path(__file__).parent / "words.txt").read_text().split()


class Echo(Environment):
    players = {{"hi": lambda: Scripted(["hi"])}}

    def __init__(self, size: int = 4):
        self.size = size

    def tasks(self, split="train"):
        return [Task(id=f"t{{n}}", prompt=(user("x"),), answer=WORDS[n % len(WORDS)]) for n in range(self.size)]

    async def run(self, episode):
        await episode.agent.act(*episode.task.prompt)
        episode.reward("r", 1.0 + BONUS)
"""


@pytest.fixture
def files(tmp_path, monkeypatch, request):
    """An environment in a file, with a module and a data file of its own; names are fresh, as modules stay imported."""
    monkeypatch.chdir(tmp_path)
    stem = f"made_{abs(hash(request.node.nodeid)) % 10**9}"
    (tmp_path / f"{stem}.py").write_text(ENV.format(helper=f"{stem}_helper"))
    (tmp_path / f"{stem}_helper.py").write_text("BONUS = 0.0\n")
    (tmp_path / "words.txt").write_text("a b c d\n")
    return stem


def test_every_changed_byte_of_code_data_and_settings_is_refused(files, tmp_path):
    env = f"{files}.py:Echo"
    evaluate_sync(env, "hi", out="run", progress=False)
    evaluate_sync(env, "hi", out="run", progress=False)  # nothing changed
    rng, refused = random.Random(0), 0
    changing = [f"{files}.py", f"{files}_helper.py", "words.txt"]
    for _ in range(90):
        name = rng.choice(changing)
        body = (tmp_path / name).read_bytes()
        place = rng.randrange(len(body))
        byte = bytes([rng.choice([b for b in range(32, 127) if b != body[place]])])
        (tmp_path / name).write_bytes(body[:place] + byte + body[place + 1 :])
        with pytest.raises(UsageError, match=r"^run: .*changed since this run began") as refusal:
            evaluate_sync(env, "hi", out="run", progress=False)
        assert name in str(refusal.value)
        assert "(--accept-changes, or accept_changes=True)" in str(refusal.value)
        assert "\n" not in str(refusal.value)
        (tmp_path / name).write_bytes(body)
        refused += 1
    settings = [{"samples": 2}, {"seed": 1}, {"n": 2}, {"split": "train"}, {"limits": Limits(max_turns=3)}]
    settings += [{"task": "t1"}, {"rubric": Rubric(Reward(length, name="length"))}]
    for other in settings:
        with pytest.raises(UsageError, match=r"^run"):
            evaluate_sync(env, "hi", out="run", progress=False, **other)
        refused += 1
    for other_env in (f"{files}.py:Echo,size=3", f"{files}.py:Echo,size=5", f"{files}.py:Echo,size=8"):
        with pytest.raises(UsageError, match=r"^run"):
            evaluate_sync(other_env, "hi", out="run", progress=False)
        refused += 1
    assert refused == 100
    assert evaluate_sync(env, "hi", out="run", progress=False).reward.value == 1.0


def length(completion):
    return float(len(completion))


class Paid(Environment):
    """Pays what it is told to; every second task fails until `works` is set."""

    works = False

    def __init__(self, pay):
        self.pay = pay

    def tasks(self, split="train"):
        return [Task(id=f"t{n}", prompt=(user("x"),)) for n in range(6)]

    async def run(self, episode):
        await episode.agent.act(*episode.task.prompt)
        if not self.works and int(episode.task.id[1:]) % 2:
            raise ValueError("not now")
        episode.reward("r", self.pay)


def test_accepted_changes_give_two_figures_and_no_common_one(tmp_path, monkeypatch):
    out = tmp_path / "run"
    first = evaluate_sync(Paid(1.0), Scripted(["hi"]), out=out, progress=False)
    assert (first.scored, first.reward.value, first.by_code) == (3, 1.0, {})
    monkeypatch.setattr(Paid, "works", True)
    with pytest.raises(UsageError, match="the environment's settings have changed"):
        evaluate_sync(Paid(3.0), Scripted(["hi"]), out=out, progress=False)
    both = evaluate_sync(Paid(3.0), Scripted(["hi"]), out=out, progress=False, accept_changes=True)
    assert both.reward is None
    assert (both.rewards, both.parts, both.scored) == ({}, {}, 6)
    assert [(one.reward.value, one.scored) for one in both.by_code.values()] == [(1.0, 3), (3.0, 3)]
    plain = json.loads((out / "report.json").read_text())
    assert [one["rewards"]["agent"]["value"] for one in plain["by_code"].values()] == [1.0, 3.0]
    assert plain["rewards"] == {}
    stored = {rollout.provenance for rollout in load_run(out).rollouts}
    assert stored == set(both.by_code) == {entry["digest"] for entry in read_lock(out).made_by}
    assert str(both).count("made by") == 2
    with pytest.raises(UsageError, match="2 versions"):
        compare(out, out)


class Says:
    """A policy of one's own."""

    def __init__(self, word):
        self.word = word

    async def complete(self, messages, tools=(), *, key=""):
        return Completion(message=assistant(self.word))


def named(url="http://127.0.0.1:1/v1", model="m", **options):
    return Endpoint(url, model=model, **options)


def low(messages, rng):
    return "low"


def high(messages, rng):
    return "high"


def made_by(policy):
    return provenance_of(Paid(1.0), policy=policy).digest


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Scripted(["a"]), Scripted(["b"])),
        (Scripted(low), Scripted(high)),
        (Scripted(["a"]), {"agent": Scripted(["a"])}),
        (Says("a"), Says("b")),
        (Says("a"), Scripted(["a"])),
        (named(), named(model="other")),
        (named(), named("http://127.0.0.1:2/v1")),
        (named(), named(temperature=0.5)),
        (named(), named(extra_body={"top_p": 0.5})),
    ],
)
def test_another_policy_is_another_digest(first, second):
    assert made_by(first) != made_by(second)


def test_connections_and_keys_of_a_policy_do_not_count():
    same = [named(), named(concurrency=3), named(timeout=9.0), named(api_key="k"), named("http://127.0.0.1:1/v1?k=1")]
    assert len(set(map(made_by, same))) == 1
    assert made_by(Scripted(low)) == made_by(Scripted(low))


def test_weights_that_have_learnt_are_another_policy():
    model = deepcopy(MODEL)
    policy = LocalPolicy.of(model, TOKENIZER)
    before = made_by(policy)
    assert made_by(LocalPolicy.of(deepcopy(MODEL), TOKENIZER)) == before != made_by(policy.greedy())
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    assert made_by(policy) != before


def test_another_policy_in_the_same_folder_is_refused(tmp_path):
    play = partial(evaluate_sync, Paid(1.0), out=tmp_path / "run", progress=False)
    first = play(policy=Scripted(["a"]))
    assert play(policy=Scripted(["a"])).reward == first.reward
    with pytest.raises(UsageError, match="the policy has changed since this run began"):
        play(policy=Scripted(["b"]))


def test_an_edited_script_of_a_policy_is_refused(files, tmp_path, capsys):
    bot = tmp_path / f"{files}_bot.py"
    bot.write_text("def bot(messages, rng):\n    return 'a'\n")

    def evaluate(*more):
        with pytest.raises(SystemExit) as end:
            main(["eval", f"{files}.py:Echo", "--policy", f"{bot.name}:bot", "--out", "run", *more])
        return end.value.code or 0, capsys.readouterr().err

    assert evaluate()[0] == evaluate()[0] == 0
    bot.write_text("def bot(messages, rng):\n    return 'b'\n")
    code, line = evaluate()
    assert (code, bot.name in line) == (2, True)
    assert evaluate("--accept-changes")[0] == 0


def test_versions_stay_apart_when_they_are_scored_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    evaluate_sync(Paid(1.0), Scripted(["hi"]), out=out, progress=False)
    monkeypatch.setattr(Paid, "works", True)
    evaluate_sync(Paid(3.0), Scripted(["hi"]), out=out, progress=False, accept_changes=True)
    (tmp_path / "loud.py").write_text("def loud(completion):\n    return 1.0\n")
    with pytest.raises(SystemExit):
        main(["rescore", str(out), "--rubric", f"{tmp_path / 'loud.py'}:loud", "--json"])
    body = json.loads(capsys.readouterr().out)
    assert (body["comparison"], body["report"]["rewards"]) == (None, {})
    assert [one["rewards"]["agent"]["value"] for one in body["report"]["by_code"].values()] == [1.0, 1.0]


def test_a_lock_is_enough_to_make_the_run_again(files, tmp_path):
    evaluate_sync(f"{files}.py:Echo", "hi", n=3, samples=2, out="first", progress=False, settings=CLI(files))
    lock = read_lock(tmp_path / "first")
    assert lock.packages["pytest"] == pytest.__version__
    fresh = tmp_path / "elsewhere"
    fresh.mkdir()
    shutil.copy(tmp_path / "first" / "wander.lock", fresh)
    again = wander("rerun", "wander.lock", "--out", "again", cwd=fresh)
    assert again.returncode == 0, again.stderr
    assert "the same as then" in again.stderr
    assert played(fresh / "again") == played(tmp_path / "first")
    assert read_lock(fresh / "again").made_by == lock.made_by
    assert wander("rerun", "wander.lock", "--out", "again", cwd=fresh).returncode == 2
    changed = json.loads((fresh / "wander.lock").read_text())
    changed["sources"][f"{files}_helper.py"] += "# more\n"
    (fresh / "wander.lock").write_text(json.dumps(changed))
    other = wander("rerun", ".", "--out", "other", cwd=fresh)
    assert f"not the same as then: {files}_helper.py" in other.stderr
    changed["sources"]["../outside.py"] = ""
    (fresh / "wander.lock").write_text(json.dumps(changed))
    assert "lay outside" in wander("rerun", ".", "--out", "third", cwd=fresh).stderr


def wander(*words, cwd):
    command = [sys.executable, "-m", "wanderlust.cli.main", *words]
    return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)


def CLI(files):
    """What `wander eval` notes of such an evaluation."""
    return {"env": f"{files}.py:Echo", "policy": "hi", "num_tasks": 3, "samples": 2, "seed": 0}


def played(out):
    return [
        (r.task.id, r.sample_index, r.trajectory.messages, r.trajectory.score, r.provenance)
        for r in load_run(out).rollouts
    ]


def test_training_goes_on_with_the_same_code_only(files, tmp_path):
    config = TrainConfig(env=f"{files}.py:Echo", policy="fresh", steps=1)
    run = Run.begin(tmp_path / "run", config)
    assert run.lock(config) == []
    begun = run.store.provenance
    run.store.close()
    with (tmp_path / f"{files}_helper.py").open("a") as file:
        file.write("# more\n")
    run = Run.resume(tmp_path / "run")
    with pytest.raises(UsageError, match=f"{files}_helper.py has changed"):
        run.lock(config)
    assert run.lock(config, accept_changes=True) == [f"{files}_helper.py"]
    assert run.store.provenance != begun
    assert run.lock(config) == []
    assert len(read_lock(tmp_path / "run").made_by) == 2
    run.store.close()


def scaled(completion, *, by):
    return by * len(completion)


def test_an_environment_typed_at_a_prompt_can_be_digested_and_checked(monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(Paid, "__module__", "__main__")
    assert set(provenance_of(Paid(1.0)).inputs) >= {"Paid", "the tasks"}
    monkeypatch.setattr(Paid, "works", True)
    assert check(Paid(1.0), probe=False).tasks_played == 4


def test_digests_see_weights_settings_of_rewards_and_code_without_a_file():
    env, scope = Paid(1.0), {"Environment": Environment, "__name__": "typed_at_a_prompt"}
    rubrics = (
        None,
        Rubric(Reward(partial(scaled, by=1), name="x")),
        Rubric(Reward(partial(scaled, by=2), name="x")),
        Rubric(Reward(partial(scaled, by=2), weight=0.5, name="x")),
        Rubric(Reward(partial(scaled, by=2), weight=0.5, name="x", role="metric"), Reward(length)),
    )
    digests = [provenance_of(env, rubric=rubric).digest for rubric in rubrics]
    exec("class Shell(Environment):\n    async def run(self, episode): ...", scope)
    made = provenance_of(scope["Shell"]())
    digests += [made.digest, provenance_of(env, limits=Limits(max_turns=2)).digest]
    assert len(set(digests)) == 7
    assert provenance_of(env, limits=Limits(timeout=9.0)).digest == digests[0]
    assert made.inputs["Shell"] == "no source"


def test_a_ready_made_environment_counts_by_the_core_and_its_own_part():
    made = provenance_of(load_environment("tictactoe"))
    rest = {"the rubric", "the tasks", "the environment's settings", "the limits"}
    assert set(made.inputs) == {"wanderlust", "wanderlust.environments.tictactoe"} | rest
    assert made.sources == {}


PARTS = """
import json, sys
from wanderlust.store.provenance import provenance_of
from wanderlust.tasks.registry import load_environment
print(json.dumps([dict(provenance_of(load_environment(name)).inputs) for name in sys.argv[1:]]))
"""


MINE = """
from wanderlust import Environment
from wanderlust.environments.wordle import Wordle

class Mine(Environment):
    async def run(self, episode):
        await Wordle().run(episode)
"""


def test_an_edit_elsewhere_makes_no_run_stale(tmp_path):
    """An environment counts by the core's contract and by what it is made of, also where another one holds it."""
    source = shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("page", "__pycache__"))
    (tmp_path / "mine.py").write_text(MINE)
    command = [sys.executable, "-c", PARTS, "calculator", "wordle", "budget,env=wordle", "mine.py:Mine"]
    env = {**os.environ, "PYTHONPATH": str(source)}

    def inputs():
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def changed(place):
        before = inputs()
        with (source / "wanderlust" / place).open("a") as file:
            file.write("# another\n")
        return [{name for name in one if one[name] != other[name]} for one, other in zip(before, inputs(), strict=True)]

    wordle = {"wanderlust.environments.wordle"}
    assert changed("environments/kuhn.py") == [set()] * 4
    assert changed("training/losses.py") == [set()] * 4
    assert changed("environments/wordle.py") == [set(), wordle, wordle, wordle]
    assert changed("tools/tool_calls.py") == [{"wanderlust"}] * 4


class Parses:
    """Parses when it is collected, as a finalizer does that formats a traceback."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        ast.parse("x = [1, (2, f(3))]")


def test_a_finalizer_that_parses_meanwhile_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other_words.py").write_text("WORDS = 3\n")
    text = "\n".join(f"def f{n}(a, b=[1, 2]):\n    return [a, (b, {{'x': {n}}})]" for n in range(300))
    head = "import other_words\nfrom wanderlust import Rubric, SingleTurnEnvironment, Task, exact, user\n"
    made = "\nclass Mine(SingleTurnEnvironment):\n    def __init__(self):\n"
    made += "        super().__init__([Task(id='a', prompt=(user('b'),), answer='c')], rubric=Rubric(exact()))\n"
    (tmp_path / "mine.py").write_text(f"{head}{text}{made}")
    env = load_environment("mine.py:Mine")
    before, threshold = provenance_of(env).inputs, gc.get_threshold()
    gc.set_threshold(50, 1, 1)
    try:
        for _ in range(4):
            waiting = [Parses() for _ in range(5)]
            del waiting
            assert provenance_of(env).inputs == before
    finally:
        gc.set_threshold(*threshold)
    assert "other_words.py" in str(before)
