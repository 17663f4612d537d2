"""The gate before publication: it refuses broken environments of many kinds, and passes sound ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from broken_environments import BROKEN, ForgetsOneAwait, NeverAsks, Sums, raising, sums, with_tasks
from sound_environments import SOUND, FewShot
from tiers import proof_except
from wanderlust.cli.main import main
from wanderlust.environment import Environment
from wanderlust.evals.gate import CheckReport, check, probe
from wanderlust.rubrics.rubric import Rubric
from wanderlust.store.provenance import DIGEST_CHARS
from wanderlust.types import Message, Task, assistant, user


@pytest.mark.parametrize("name", proof_except([*BROKEN][::4], BROKEN, group="rewards"))
def test_broken_environments_are_refused(name: str) -> None:
    assert not check(BROKEN[name]()).ok


@pytest.mark.parametrize("name", proof_except([*SOUND][::4], SOUND, group="rewards"))
def test_sound_environments_pass(name: str) -> None:
    report = check(SOUND[name]())
    assert report.ok, str(report)
    assert report.probe is not None
    assert not report.probe.crashes


def test_the_battery_is_large_enough() -> None:
    assert len(BROKEN) >= 40
    assert len(SOUND) >= 40


def rules(report: CheckReport) -> set[str]:
    return {one.rule for one in report.violations}


def test_each_mistake_is_told_by_its_name() -> None:
    assert "turns" in rules(check(NeverAsks(), probe=False))
    assert "await" in rules(check(ForgetsOneAwait(), probe=False))
    assert "splits" in rules(check(BROKEN["same values reworded"](), probe=False))
    assert rules(check(BROKEN["some keys wrong"]())) == {"oracle"}
    assert rules(check(BROKEN["oracle that raises"]())) == {"oracle", "players"}
    assert rules(check(BROKEN["oracle that fails now and then"]())) == {"players"}
    assert rules(check(BROKEN["player that is an object"]())) == {"declaration"}
    told, *_ = check(with_tasks(raising)()).violations
    assert str(told) == "tasks: tasks('train'): ValueError: the data is not there"


def test_a_bar_that_the_oracle_misses_is_told_with_both_figures() -> None:
    lines = map(str, check(BROKEN["oracle below its bar"]()).violations)
    assert any("oracle_bar says at least 0.9" in line for line in lines)


def test_the_number_of_tasks_is_that_of_the_tasks_played() -> None:
    assert check(NeverAsks(), n=50, probe=False).tasks_played == 1


def test_a_card_says_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gated.py").write_text("from broken_environments import Sums\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        main(["check", "gated.py:Sums", "--card", "card.json"])
    card = json.loads((tmp_path / "card.json").read_text())
    assert done.value.code == 0
    assert card["ok"]
    assert card["ceilings"] == {"oracle": 1.0, "chance": 0.0}
    assert card["players"]["oracle"]["reward"] == 1.0
    assert card["probe"]["verdict"] == "nothing found"
    assert len(card["digests"]["tasks/eval"]) == DIGEST_CHARS
    assert any(name.endswith("broken_environments.py") for name in card["digests"])
    assert card["tasks"] == {"train": 12, "eval": 12}
    assert card["cost"]["episodes"] > 1_000
    with pytest.raises(SystemExit):
        main(["check", "gated.py:Sums", "--no-probe", "--card", "short.json"])
    assert json.loads((tmp_path / "short.json").read_text())["cost"]["episodes"] < 1_000


def test_examples_show_the_form() -> None:
    report = probe(FewShot(), n=12)
    assert report.sound
    assert len(report.spoke) > 20, report.coverage


def repeats_a_number(completion: str, prompt: Sequence[Message]) -> float:
    """A flawed reward, in a form that nobody is told: any number of the question is right."""
    said = re.fullmatch(r"it makes (\d+)", completion.strip())
    return float(said is not None and said[1] in re.findall(r"\d+", prompt[-1].content))


class ShownOnly(Sums):
    """Two examples are all that shows the form."""

    oracle = Environment.oracle
    rubric = Rubric(repeats_a_number)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        shown = (user("2 + 3"), assistant("it makes 5"), user("5 + 5"), assistant("it makes 10"))
        return [replace(task, prompt=(*shown, *task.prompt)) for task in sums(split, ask="{a} + {b}")]


def test_a_form_that_only_examples_show_is_spoken() -> None:
    report = probe(ShownOnly(), n=12)
    assert report.verdict == "flaw found", report.coverage


class Secretive(Sums):
    """No oracle, no example, and a form that nobody is told."""

    ask = "What is {a} + {b}?"
    oracle = Environment.oracle

    rubric = BROKEN["never"]().rubric


def test_what_no_probe_could_speak_is_not_sound() -> None:
    report = probe(Secretive(), n=12)
    assert report.verdict == "cannot tell"
    assert not report.sound
    assert report.coverage.startswith("0 of ")
