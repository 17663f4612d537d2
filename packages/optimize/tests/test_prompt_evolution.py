"""A system text is improved by a policy that reads rollouts; the search is stored, goes on, and is played by name."""

from __future__ import annotations

import json
import shutil

import pytest

from wanderlust import Rubric, Scripted, SingleTurnEnvironment, Task, evaluate_sync, exact, load_environment, user
from wanderlust.algorithms import EvolutionConfig, optimize_prompt
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.store.run import load_run
from wanderlust.types import system
from wanderlust_optimize.prompt_evolution import shown

pytest.importorskip("gepa", reason="not installed: pip install 'wanderlust[gepa]'")
WORDS = {"sky": "blue", "coal": "black", "snow": "white"}
FILE = '''
from wanderlust import Rubric, SingleTurnEnvironment, Task, exact, system, user

WORDS = {"sky": "blue", "coal": "black", "snow": "white"}
ASKED = []

class Colours(SingleTurnEnvironment):
    """Colours, in capital letters only if the system text says so."""
    rubric = Rubric(exact())

    def tasks(self, split="train"):
        return [
            Task(id=f"{split}-{n}-{t}", prompt=(system("Answer."), user(f"colour of {t} number {n}")), answer=c.upper())
            for n in range(8) for t, c in WORDS.items()
        ]

def player(messages, rng):
    """Knows the colours that its system text names, and writes capitals where it is told to."""
    text, thing = messages[0].content, messages[-1].content.split()[2]
    said = WORDS[thing] if thing in text else "grey"
    return said.upper() if "capitals" in text else said

def reflector(messages, rng):
    """Adds to the instruction what the examples ask for, two things at a time."""
    ASKED.append(messages[-1].content)
    before, examples = messages[-1].content.split("```")[1].strip(), messages[-1].content.split("```")[3]
    missing = [word for word in ("capitals", *WORDS) if word not in before]
    seen = [word for word in missing if word == "capitals" or f"colour of {word}" in examples]
    return f"Here it is:\\n```\\n{before} {' '.join(seen[:2])}\\n```" if seen else "I do not know."
'''


@pytest.fixture
def colours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colours.py").write_text(FILE)
    return load_environment("colours.py:Colours")


def policies(env):
    module = __import__("sys").modules[type(env).__module__]
    return Scripted(module.player), Scripted(module.reflector), module.ASKED


def test_texts_that_earn_more_are_kept_and_the_best_is_better_on_held_out_tasks(colours, tmp_path):
    player, reflector, _ = policies(colours)
    config = EvolutionConfig(iterations=8, minibatch=4, pareto=12)
    report = optimize_prompt(colours, player, reflector, config=config, out=tmp_path / "out", progress=False)
    assert report.before.value == 0
    assert report.after.value == 1
    assert report.best.text.startswith("Answer. ")
    assert {"capitals", *WORDS} <= {*report.best.text.split()}
    assert [one.parent is None for one in report.candidates][:2] == [True, False]
    assert "better" in report.verdict
    assert (tmp_path / "out/best.txt").read_text().strip() == report.best.text
    assert json.loads((tmp_path / "out/report.json").read_text())["best"]["number"] == report.best.number


def test_a_search_goes_on_from_what_is_stored(colours, tmp_path):
    player, reflector, asked = policies(colours)
    config = EvolutionConfig(iterations=6, minibatch=4, pareto=12)
    whole = optimize_prompt(colours, player, reflector, config=config, out=tmp_path / "whole", progress=False)
    stopped = sorted((tmp_path / "whole/rollouts").iterdir(), key=lambda one: one.stat().st_mtime)[-4:]
    for folder in stopped:
        shutil.rmtree(folder)
    count = len(asked)
    again = optimize_prompt(colours, player, reflector, config=config, out=tmp_path / "whole", progress=False)
    assert again.as_dict() == whole.as_dict()
    assert len(asked) == count  # proposals are asked for once
    other = EvolutionConfig(iterations=7, minibatch=4, pareto=12)
    with pytest.raises(UsageError, match="holds another search"):
        optimize_prompt(colours, player, reflector, config=other, out=tmp_path / "whole", progress=False)


def test_the_command_writes_a_text_that_eval_plays(colours, tmp_path, capsys):
    words = ["optimize", "colours.py:Colours", "--policy", "colours.py:player", "--reflector", "colours.py:reflector"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--iterations", "8", "--pareto", "12", "--out", "out", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["after"]["value"] == 1
    target = "instructed,file=out/best.txt,env=colours.py:Colours"
    with pytest.raises(SystemExit) as ended:
        main(["eval", target, "--policy", "colours.py:player", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["report"]["rewards"]["agent"]["value"] == 1


def test_a_rollout_is_shown_with_reward_parts_and_reference(tmp_path):
    env = SingleTurnEnvironment(
        {"eval": [Task(id="a", prompt=(system("Rules."), user("colour?")), answer="blue")]}, rubric=Rubric(exact())
    )
    evaluate_sync(env, Scripted(["red"]), out=tmp_path / "run", progress=False)
    with load_run(tmp_path / "run") as run:
        read = shown(run.rollouts[0])
    assert read["Conversation"].splitlines() == ["user: colour?", "assistant: red"]
    assert read["Feedback"].splitlines() == ["Reward: 0 (exact 0)", "Reference answer: blue"]


def test_tasks_without_a_common_text_need_one_to_begin_with(tmp_path):
    tasks = [Task(id=f"{n}", prompt=(user(f"colour {n}"),), answer="blue") for n in range(12)]
    env = SingleTurnEnvironment({"train": tasks, "eval": tasks}, rubric=Rubric(exact()))
    with pytest.raises(UsageError, match="have no system text"):
        optimize_prompt(env, Scripted(["x"]), Scripted(["y"]), out=tmp_path, progress=False)
