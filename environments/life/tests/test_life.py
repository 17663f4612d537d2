"""Lives as environments, for policies and for people, and `wander world`."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path

import pytest

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.human import Human, describe_tools, parse_typed_call
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import installed_environments, load_environment
from wanderlust.testing import check_environment
from wanderlust.tools.function import FunctionTool
from wanderlust.types import Status, assistant
from wanderlust_life.assistant_life import AssistantLife, AssistantLifeTeam, scenario_of
from wanderlust_life.families.family import all_families
from wanderlust_life.players import KeywordPolicy, OraclePolicy
from wanderlust_worlds.wrap.assistant import idle_policy
from wanderlust_worlds.wrap.world_environment import fixed_thinking_time


def rewards(env, policy, tasks):
    async def played():
        return [await rollout(env, task, policy) for task in tasks]

    done = asyncio.run(played())
    assert [one.error for one in done if one.status is Status.ERROR] == []
    return [one.trajectories[0].score.reward for one in done]


def test_entry_points_lead_here():
    assert {"life", "life-team"} <= installed_environments().keys()
    assert isinstance(load_environment(installed_environments()["life"]), AssistantLife)


def test_tasks_say_what_they_are_and_splits_are_apart():
    env = AssistantLife()
    held = list(env.tasks("eval"))
    assert len(held) == len({task.id for task in held}) == 2 * 3 * len(all_families())
    train = list(islice(env.tasks("train"), 200))
    assert not {task.id for task in held} & {task.id for task in train}
    assert train[0].id.endswith("/train-0/1")
    assert {"family", "capability", "level"} == held[0].info.keys()
    assert len(json.dumps(held[0].info)) < 200
    with pytest.raises(UsageError, match="no split"):
        env.tasks("test")


def test_a_part_can_be_chosen():
    env = AssistantLife(["too-late", "invite"], levels=(2,))
    assert [task.id for task in env.tasks("eval")][:2] == ["too-late/eval-0/2", "invite/eval-0/2"]
    with pytest.raises(UsageError, match="no family 'nap'"):
        AssistantLife(["nap"])
    with pytest.raises(UsageError, match="no level 9"):
        AssistantLife(levels=(9,))
    for name in ("invite", "invite/eval-0", "invite/eval-x/1", "invite/test-0/1", "invite/eval-0/7"):
        with pytest.raises(UsageError, match="names no scenario"):
            scenario_of(name)


def test_players_score_as_they_should():
    env = AssistantLife()
    tasks = list(env.tasks("eval"))
    assert set(rewards(env, OraclePolicy(), tasks)) == {1.0}
    assert set(rewards(env, idle_policy(), tasks)) == {0.0}
    greedy = rewards(env, KeywordPolicy(), tasks)
    by = {task.info["capability"]: 0.0 for task in tasks}
    for task, reward in zip(tasks, greedy, strict=True):
        by[task.info["capability"]] += reward
    assert by["search"] > 5
    assert by["ambiguity"] == 2
    assert by["time"] == by["adaptability"] == by["noise"] == 0
    assert sum(greedy) < 0.25 * len(tasks)
    page = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    assert f"| `greedy` | {sum(greedy) / len(tasks):.2f} |" in page


def test_thinking_costs_the_oracle_its_timing():
    tasks = list(AssistantLife(["countdown"], levels=(2,)).tasks("eval"))
    assert rewards(AssistantLife(thinking=fixed_thinking_time(2)), OraclePolicy(), tasks) == [1.0, 1.0]
    assert rewards(AssistantLife(thinking=fixed_thinking_time(90)), OraclePolicy(), tasks) == [0.0, 0.0]


def test_a_team_is_graded_by_the_same_log():
    env = AssistantLifeTeam()
    tasks = list(env.tasks("eval"))
    assert {task.info["capability"] for task in tasks} == {"agent2agent"}
    assert set(rewards(env, OraclePolicy(), tasks)) == {1.0}
    assert set(rewards(env, idle_policy(), tasks)) == {0.0}


def test_a_rollout_is_replayed_from_its_record():
    env = AssistantLife(thinking=fixed_thinking_time(3))
    task = next(iter(env.tasks("train")))
    first = asyncio.run(rollout(env, task, OraclePolicy()))
    again = asyncio.run(rollout(env.with_recorded_thinking(first), task, Recorded(first)))
    assert again.state["digest"] == first.state["digest"]


def test_life_keeps_the_promises_of_environments():
    found = asyncio.run(check_environment(AssistantLife(["invite", "too-late", "watch-for", "pass-on"], levels=(1,))))
    assert [str(one) for one in found] == []


def test_evaluation_breaks_down_by_capability():
    env = AssistantLife(levels=(1,))
    parts = {}
    for task in env.tasks("eval"):
        parts.setdefault(task.info[env.group_by], []).append(task)
    assert set(parts) == {one.capability for one in all_families().values()}
    report = asyncio.run(evaluate(env, OraclePolicy(), tasks=parts["time"]))
    assert report.as_dict()["tasks"] == len(parts["time"])


def test_scenarios_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("wanderlust_life.assistant_life.SCENARIO_CACHE_ENTRIES", 3)
    env = AssistantLife(levels=(1,))
    for task in islice(env.tasks("train"), 8):
        env.scenario(task)
    assert len(env._scenarios) == 3


# People


def quotation(start: str, seats: int = 4, tags: list[str] | None = None) -> str:
    """Ask what it costs.

    Args:
        start: Where from.
        seats: How many.
        tags: Words.
    """
    return f"{start} {seats} {tags}"


TOOLS = [FunctionTool(quotation)]


def test_a_person_can_call_tools():
    call = parse_typed_call('quotation start=\'12 High Street\' seats=2 tags=["a","b"]', TOOLS)
    assert call is not None
    assert json.loads(call.arguments) == {"start": "12 High Street", "seats": 2, "tags": ["a", "b"]}
    one = parse_typed_call("quotation start=5 tags=a", TOOLS)
    assert one is not None
    assert json.loads(one.arguments) == {"start": "5", "tags": ["a"]}
    assert parse_typed_call("How are you?", TOOLS) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("quotation from=x", "takes start"),
        ("quotation start='x", "cannot be read"),
        ("Cabs__quotaton start=x", "there is no tool"),
        ("quotation x", "what is 'x'"),
    ],
)
def test_what_a_person_mistypes_is_said_in_one_line(line, why):
    with pytest.raises(UsageError, match=why):
        parse_typed_call(line, TOOLS)


def test_tools_are_explained_to_people():
    assert list(describe_tools("?", TOOLS)) == ["quotation  start, [seats], [tags]"]
    assert any("Where from." in line for line in describe_tools("? quotation", TOOLS))
    assert list(describe_tools("? nap", TOOLS)) == ["there is no tool with 'nap' in its name"]


def test_a_person_lives_a_life():
    env = AssistantLife(["too-late"], levels=(1,))
    task = next(iter(env.tasks("eval")))
    words = env.scenario(task).oracle[0].args["content"].split()
    number, price = next(word for word in words if word.startswith("W-")), words[words.index("paid") + 1]
    lines = iter(
        [
            "? get_order",
            "Shopping__get_order_detail order_id=1",
            f"Shopping__get_order_details order_id={number}",
            f"{number} cannot be cancelled: it was delivered. You paid {price}.",
        ]
    )
    said = []
    played = asyncio.run(rollout(env, task, Human(ask=lambda _: next(lines), say=said.append)))
    assert played.trajectories[0].score.reward == 1.0
    assert any("Shopping__get_order_details  order_id" in line for line in said)
    assert any("there is no tool 'Shopping__get_order_detail'" in line for line in said)
    assert any('"order_status":"delivered"' in line for line in said)


# The command


def wander(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_families_are_listed(capsys):
    code, out, _ = wander(capsys, "world", "list", "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)["families"]] == [*all_families()]
    code, out, _ = wander(capsys, "world", "list")
    assert "what makes it hard" in out


def test_a_scenario_is_shown(capsys):
    code, out, _ = wander(capsys, "world", "show", "no-answer/eval-0/2")
    assert code == 0
    assert "must say" in out
    assert "capability time" in out
    assert json.loads(wander(capsys, "world", "show", "no-answer", "--json")[1])["id"] == "no-answer/eval-0/1"


def test_a_policy_is_run_and_its_timeline_shown(capsys):
    code, out, _ = wander(capsys, "world", "run", "which-evening")
    assert code == 0
    assert "Reward: 1." in out
    code, out, _ = wander(capsys, "world", "run", "which-evening", "--policy", "nothing", "--json")
    assert json.loads(out)["reward"] == 0.0


def test_a_rollout_of_an_evaluation_is_shown(capsys, tmp_path):
    run = str(tmp_path / "run")
    assert wander(capsys, "eval", "life", "--policy", "oracle", "--num-tasks", "2", "--out", run)[0] == 0
    code, out, _ = wander(capsys, "world", "show", run, "1")
    assert code == 0
    assert "Reward: 1." in out


def test_wrong_calls_are_one_line(capsys):
    for words, why in (
        (("world", "dance"), "no command 'dance'"),
        (("world", "show"), "needs SCENARIO"),
        (("world", "show", "nap/eval-0/1"), "no family 'nap'"),
        (("world", "run", "invite/eval-0/1", "--policy", "nobody"), "nobody"),
    ):
        code, out, err = wander(capsys, *words)
        assert (code, out) == (2, "")
        assert why in err
        assert len(err.splitlines()) == 1


def test_a_policy_that_talks_to_itself_does_not_hang():
    env = AssistantLife(["invite"], levels=(1,))
    task = next(iter(env.tasks("eval")))
    assert rewards(env, Scripted(lambda _messages, _rng: assistant("x" * 10_000)), [task]) == [0.0]


def test_numbered_results_can_be_logged():
    world = scenario_of("spent-on-rides/eval-0/1").world()
    world.wait()
    rides = world.call("Cabs", "get_ride_history", {"limit": 2})["rides"]
    assert [*rides] == [0, 1]
    assert world.digest() == world.branch().digest()
