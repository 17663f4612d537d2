"""`wander world bench`: figures by capability beside the players, kept and gone on with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from wanderlust.cli.main import main
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.scripted import Scripted
from wanderlust_life.planner.plan import planner_policy
from wanderlust_life.world_benchmark import run_world_benchmark

SPEC = 'life,families=["who-said","invite","two-of-a-name"],levels=1'


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    out, told = tmp_path_factory.mktemp("bench"), []
    prices = TokenPrices(input=1.0, output=2.0)
    return (
        run_world_benchmark(SPEC, "greedy", out=out, samples=2, prices=prices, announce=told.append, progress=False),
        out,
        told,
    )


def test_figures_are_by_capability_beside_the_players(played):
    result, out, _ = played
    assert {*result.report.breakdown} == {"search", "execution", "ambiguity"}
    assert [*result.players] == ["nothing", "greedy", "planner", "oracle"]
    assert [result.players[name].reward.value for name in ("nothing", "oracle")] == [0, 1]
    assert result.report.reward.value == result.players["greedy"].reward.value
    assert {"pass@2", "pass^2"} <= {*result.report.passes}
    body, row = (json.loads((out / name).read_text()) for name in ("bench.json", "leaderboard.json"))
    assert body["figures"]["played"] == row["scored"] == 12
    assert row["pass@1"][0] == result.report.reward.value
    assert len(row["code"]) >= 8
    assert "who-said" in (out / "bench.md").read_text()


def test_the_cost_is_told_before_and_is_what_the_oracle_takes(played):
    result, _, (expected,) = played
    assert expected == result.expected
    assert expected.rollouts == 12
    assert expected.tokens_in > 100 * expected.tokens_out > 0
    assert expected.dollars == pytest.approx((expected.tokens_in + 2 * expected.tokens_out) / 1e6)


def test_the_same_call_goes_on_and_another_one_is_refused(played):
    result, out, _ = played
    again = run_world_benchmark(SPEC, "greedy", out=out, samples=2, progress=False)
    assert again.report.reward == result.report.reward
    with pytest.raises(UsageError, match="holds another evaluation"):
        run_world_benchmark(SPEC, "nothing", out=out, samples=2, progress=False)
    with pytest.raises(UsageError, match="no environment of generated scenarios"):
        run_world_benchmark("wordle", "random", out=out / "other", progress=False)


def test_tasks_are_calibrated_by_players_of_different_strength(tmp_path):
    spec = 'life,families=["who-said","invite","countdown"],levels=[1,2]'
    one = Scripted(lambda messages, rng: "Hello.")
    result = run_world_benchmark(
        spec, "greedy", out=tmp_path, samples=1, players={"chatty": one, "again": "planner"}, progress=False
    )
    assert [*result.players] == ["nothing", "greedy", "planner", "oracle", "chatty", "again"]
    found = result.calibration
    assert found.counted == ["greedy", "planner", "chatty", "again"]
    assert found.players["planner"] == found.players["again"]
    assert found.players["oracle"].by_level["1"].value == 1
    assert found.players["oracle"].levels_in_order is None
    assert found.players["planner"].levels_in_order is True  # an invitation of level 2 names two people alike
    assert not found.players_in_order  # of these three families greedy passes as few as nothing
    planned = {row.task: 2 * row.passed for row in result.players["planner"].task_rows}  # by both planners
    assert found.solvers == planned
    assert planned["invite/eval-0/1"] == 2
    assert planned["countdown/eval-0/1"] == 0
    assert sum(one.value for one in found.solved.values()) == pytest.approx(1)
    assert found.solved["all"].value == 0
    assert [*found.remarks] == ["chatty"]
    assert found.remarks["chatty"].startswith("chatty called no tool in 12 rollouts")
    body, page = json.loads((tmp_path / "bench.json").read_text()), (tmp_path / "bench.md").read_text()
    assert body["calibration"]["players"]["again"]["by_level"]["2"]["count"] == 6
    assert body["calibration"]["solvers"] == dict(found.solvers)
    assert "Tasks by the players who solve them" in page
    assert "chatty called no tool" in page
    assert (tmp_path / "players" / "again").is_dir()
    with pytest.raises(UsageError, match="cannot be called 'greedy'"):
        run_world_benchmark(spec, "greedy", out=tmp_path, players={"greedy": one}, progress=False)


def test_curves_are_over_tokens_time_and_money(tmp_path):
    class Priced:
        async def complete(self, messages, tools=(), *, key=""):
            answer = await planner_policy().complete(messages, tools, key=key)
            return replace(answer, usage={"prompt_tokens": 100, "completion_tokens": 10})

    prices = TokenPrices(input=1.0, output=1.0)
    spec = "life,families=too-late,levels=1"
    result = run_world_benchmark(spec, Priced(), out=tmp_path, samples=1, prices=prices, progress=False)
    assert {*result.curves} == {"tokens", "simulated_seconds", "dollars"}
    tokens, dollars = result.curves["tokens"], result.curves["dollars"]
    assert [(round(1e6 * budget), share) for budget, share in dollars] == tokens
    assert all(budget % 110 == 0 for budget, _ in tokens)
    assert tokens[-1][1] == 1
    assert f"1.00 within {dollars[-1][0]:.2g}" in (tmp_path / "bench.md").read_text()


def test_a_player_that_fails_everywhere_is_told_in_a_line(tmp_path):
    def fails(messages, rng):
        raise PolicyFailure("out of order")

    result = run_world_benchmark(
        "life,families=invite,levels=1",
        "oracle",
        out=tmp_path,
        samples=1,
        players={"broken": Scripted(fails)},
        progress=False,
    )
    assert "broken failed in all 2 rollouts" in result.calibration.remarks["broken"]
    assert "out of order" in result.calibration.remarks["broken"]
    assert result.calibration.players["broken"].whole is None
    assert "unknown" in (tmp_path / "bench.md").read_text()
    assert result.expected.rollouts == 4


def test_a_judge_that_refuses_is_counted(tmp_path):
    judge = tmp_path / "judge.py"
    judge.write_text("from wanderlust import Scripted\nno = Scripted(lambda messages, rng: 'no')\n")
    spec = f"life,families=invite,levels=1,judge={judge}:no"
    result = run_world_benchmark(spec, "oracle", out=tmp_path / "out", samples=1, progress=False)
    assert result.disagreements is not None
    assert result.disagreements == round((1 - result.report.reward.value) * result.report.scored)


def test_the_command_prints_and_needs_a_folder(tmp_path, capsys):
    words = ["world", "bench", "life,families=invite,levels=1", "--policy", "oracle", "--samples", "1"]
    words += ["--player", "other=planner"]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    with pytest.raises(SystemExit) as end:
        main([*words, "--out", str(tmp_path / "out"), "--json"])
    assert not end.value.code
    said = capsys.readouterr()
    assert json.loads(said.out)["figures"]["scored"] == 2
    assert "4 rollouts" in said.err
    assert json.loads(said.out)["calibration"]["players"]["other"]["whole"]["count"] == 2
    with pytest.raises(SystemExit) as end:
        main([*words, "--out", str(tmp_path / "out"), "--player", "planner"])
    assert end.value.code == 2
    assert "NAME=POLICY" in capsys.readouterr().err
