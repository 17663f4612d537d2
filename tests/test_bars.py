"""A bar knows whether it is met, whichever way is good."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date
from itertools import islice

import pytest
from benchmarks import bars_engines, bars_peers, bars_toolcall, bars_vllm, peer, results
from benchmarks.__main__ import main, subjects
from benchmarks.bar import Bar
from benchmarks.bars_crowd import costs, rounds
from benchmarks.bars_endpoint import model
from benchmarks.bars_monitors import PART, cut, worth
from benchmarks.bars_peers import EngineFailure
from benchmarks.courses import played
from benchmarks.crowd import Round
from benchmarks.lessons import SKILLS, Lesson
from benchmarks.page import STALE, filled
from benchmarks.peer import Peer

from bars_arithmetic import unseen
from bars_budget import CURVE, Kept, smallest
from toys import fresh
from wanderlust.policies.scripted import PerRolloutPolicy, Scripted
from wanderlust.tasks.registry import load_environment
from wanderlust.training import losses
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.gradient import GradientComputer
from wanderlust.types import Tokens, Trajectory, Turn, assistant
from wanderlust_reasoning.presets import ARITHMETIC


@pytest.mark.parametrize(
    ("figure", "better", "verdict"),
    [
        (12.0, "lower", "missed"),
        (10.0, "lower", "met"),
        (5.0, "lower", "met, and the aim"),
        (4.0, "higher", "missed"),
        (None, "higher", "missed"),
    ],
)
def test_verdict(figure, better, verdict):
    bar, aim = (10.0, 5.0) if better == "lower" else (5.0, 10.0)
    assert Bar(name="x", figure=figure, bar=bar, aim=aim, better=better).verdict == verdict


def test_line_names_everything_and_aligns():
    lines = [
        Bar(name="wall time", figure=1234.5, bar=600, aim=180, unit="s").line(),
        Bar(name="draws", figure=97.25, bar=95, aim=100, unit="%", better="higher", note="five seeds").line(),
    ]
    assert " ".join(lines[0].split()) == "wall time 1,234 s <= 600 s aim 180 s missed"
    assert lines[1].endswith("five seeds")
    assert lines[0].index("<=") == lines[1].index(">=")


def test_record_is_plain_data():
    record = Bar(name="x", figure=1.0, bar=2.0, aim=0.5).record()
    assert json.loads(json.dumps(record))["verdict"] == "met"


def test_unknown_bars_are_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--only", "instal"])
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert all(name in said for name in subjects())


@pytest.mark.parametrize(
    ("accuracy", "budget"),
    [
        ((0.6, 0.7, 0.74, 0.752, 0.755, 0.755, 0.76), 52),
        ((0.755,) * 6 + (0.76,), CURVE[0]),
        ((0.76, 0.1, 0.76, 0.76, 0.76, 0.76, 0.76), 44),
        ((0.1,) * 6 + (0.9,), CURVE[-1]),
    ],
)
def test_the_smallest_budget_costs_at_most_a_point_as_do_all_above_it(accuracy, budget):
    assert smallest([Kept(right={"q": one}, tokens=1.0) for one in accuracy]) == budget


def test_unseen_sums_are_unseen() -> None:
    pytest.importorskip("reasoning_gym", reason="not installed: pip install 'wanderlust[reasoning]'")
    asked = {task.prompt for task in load_environment(ARITHMETIC.env).tasks("train")}
    assert len(asked) > 4000
    assert not asked & {task.prompt for task in unseen()}


def test_what_was_not_promised_is_not_missed_when_it_cannot_be_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "PLACE", tmp_path)
    nowhere = Peer(
        name="x", module="openai_loop", pins=("openai @ file:///nowhere/openai-3-py3-none-any.whl",), turns=(1,)
    )
    monkeypatch.setattr(bars_peers, "PEERS", (nowhere,))
    measured = list(bars_peers.bars())
    assert [(bar.verdict, bar.met) for bar in measured] == [("not measured", True)]
    assert measured[0].note.startswith("cannot be installed: ERROR: ")
    assert "nowhere" in measured[0].note
    assert not list(tmp_path.glob("*/ready"))


def test_engines_play_rounds_and_say_why_they_do_not():
    with model() as url:
        with bars_peers.engine(sys.executable, "ours", url=url, turns=2) as play:
            assert [play(16) > 0, play(16) > 0] == [True, True]
        with (
            pytest.raises(EngineFailure, match=r"it failed: .*No module named benchmarks\.peers\.nobody"),
            bars_peers.engine(sys.executable, "nobody", url=url, turns=1) as play,
        ):
            play(1)


def test_the_cost_of_each_size_is_its_median():
    played = [
        Round(count=count, right=count, milliseconds=cost, seconds=1.0, megabytes=1.0)
        for count, cost in ((100, 3.0), (100, 1.0), (100, 2.0), (1000, 5.0))
    ]
    assert [(cost.count, cost.milliseconds) for cost in costs(played)] == [(100, 2.0), (1000, 5.0)]


def test_a_crowd_is_played_by_a_process_of_its_own():
    with model(0.01) as url:
        (first, second) = rounds(url, 2, 64, counts=[32, 128])
    assert (first.right, second.right) == (32, 128)
    assert 0 < first.megabytes <= second.megabytes


def test_tool_calls_are_judged_by_the_worst_seed_and_told_with_their_intervals():
    def found(value):
        return {key: {"value": value, "low": value - 0.1, "high": value + 0.1} for key in ("all", "tools", "values")}

    runs = [(found(0.5), found(0.7), 20.0), (found(0.6), found(0.55), 70.0)]
    share, minutes = bars_toolcall.judge(bars_toolcall.said(found(0.1)), runs)
    assert (share.figure, share.met, minutes.figure, minutes.met) == (0.55, False, 70.0, False)
    assert share.note.startswith("0.10 [0.00, 0.20] (tools 0.10, values 0.10) before")
    assert "0.50 [0.40, 0.60]" in share.note


@pytest.mark.parametrize("skill", SKILLS)
def test_a_lesson_pays_whole_answers_and_no_part_of_them(skill):
    env = Lesson(skill)
    tasks = list(islice(env.tasks("eval"), 20))
    knows = PerRolloutPolicy(lambda place: env.oracle(next(one for one in tasks if one.id == place.task)))
    answered = played(env, tasks, knows)
    assert worth(env, tasks, knows) == 1
    assert worth(env, tasks, cut(answered)) <= PART
    assert worth(env, tasks, Scripted([answered[0].trajectories[0].turns[0].action.content])) < 0.6
    assert 0.4 < worth(env, tasks, env.players["teacher"]()) < 0.9
    assert not {one.prompt for one in tasks} & {one.prompt for one in islice(env.tasks("train"), 500)}


def test_engines_count_that_rise_to_the_local_score():
    def three(before, after):
        return [bars_engines.Learnt(before=before, after=after + n / 100, gap=0.0) for n in range(3)]

    runs = {"local": three(0.1, 0.9), "fsdp": three(0.1, 0.91), "vllm": three(0.1, 0.5), "vllm+fsdp": three(0.9, 0.9)}
    judged = bars_engines.judge(runs, {"tinker": "not installed"})
    assert (judged.figure, judged.met) == (2, False)
    assert judged.note.startswith("local 0.910 [0.885, 0.935], gained 0.810; fsdp 0.920")
    assert judged.note.endswith("; not installed")


def test_a_token_of_older_weights_than_its_label_is_found():
    computers = {version: GradientComputer(fresh(version), loss=losses.GRPO_LOSS) for version in (2, 3, 4)}

    def played(label, weights):
        made = Trajectory(
            turns=[
                Turn(
                    observation=(),
                    action=assistant("b"),
                    tokens=Tokens(prompt=(1, 6), completion=(7,), logprobs=(0.0,), version=label),
                )
            ]
        )
        ((*_, drawn),) = computers[weights].compute_logprobs(to_samples(made))
        tokens = replace(made.turns[0].tokens, logprobs=(drawn,))
        return replace(made, turns=[replace(made.turns[0], tokens=tokens)])

    found = bars_vllm.Tokens()
    sampled = [(4, 4), (3, 3), (2, 3), (3, 2), (4, 3), (5, 4)]
    bars_vllm.check_step(found, [played(*one) for one in sampled], computers.get, newest=4, oldest=2)
    assert (found.count, found.stale, found.told_apart) == (6, 3, 3)
    told = ["label 3, weights [2]", "label 4, weights [3]", "label 5, weights [4]"]
    assert found.mislabelled == [f"step 2: {one}" for one in told]


def test_results_are_kept_with_commit_machine_and_date_and_make_the_page(tmp_path):
    bar = Bar(name="a | b", figure=1.0, bar=2.0, aim=0.5, unit="s")
    results.save("x", [bar], seconds=3.4, code="new", folder=tmp_path)
    kept = results.load(tmp_path)
    assert kept["x"]["commit"].rstrip("+") == results.commit().rstrip("+")
    assert {"processor", "cores", "load"} <= kept["x"]["machine"].keys()
    page = "one\n<!-- bars: x y -->\nold 7\n<!-- /bars -->\ntwo\n<!-- bars: z -->\n<!-- /bars -->\n"
    both = {**kept, "y": kept["x"] | {"name": "y", "entered": "by hand from docs/old.md"}}
    text = filled(page, both, {"x": "new", "y": "new"})
    assert "old 7" not in text
    assert text.count("| a \\| b | 1 s | <= 2 s | 0.5 s | met |  |") == 2
    assert text.count(f"measured on {kept['x']['measured']} at commit {kept['x']['commit']}; processor ") == 2
    assert text.index("`x`, measured on") < text.index("`y`, measured on") < text.index("two")
    assert text.count(" Entered by hand from docs/old.md.") == 1
    assert "`z`: no result is kept. `python -m benchmarks --only z` measures it." in text
    assert filled(text, both, {"x": "new", "y": "new"}) == text
    assert text.count(STALE) == 1  # the one that was entered by hand
    assert text.index("`y`, measured on") < text.index(STALE)
    assert filled(text, both, {"x": "newer", "y": "new"}).count(STALE) == 2


def test_every_kept_result_is_of_a_subject_and_says_when_and_how_it_was_measured():
    kept = results.load()
    assert kept.keys() <= {*subjects()}
    for name, result in kept.items():
        assert result["name"] == name
        assert date.fromisoformat(result["measured"])
        assert result["commit"], name
        assert result["entered"] in ("by the command", "by hand from docs/benchmarks.md"), name
        for bar in result["bars"]:
            values = {key: value for key, value in bar.items() if key not in ("met", "verdict")}
            assert Bar(**values).record() == bar, name


def test_a_result_is_current_where_it_was_measured_whole_on_the_same_code(tmp_path):
    results.save("x", [], seconds=1.0, code="new", folder=tmp_path)
    kept = results.load(tmp_path)["x"]
    assert results.is_current(kept, "new")
    assert not results.is_current(kept, "newer")
    assert not results.is_current({**kept, "entered": "by hand"}, "new")
    assert not results.is_current({name: value for name, value in kept.items() if name != "code"}, "new")
