"""Graders and data files of OpenAI's reinforcement fine-tuning, as its SDK types them: rubrics and environments."""

from __future__ import annotations

import asyncio
import json

import pytest
from openai.types.graders import (
    MultiGrader,
    PythonGrader,
    ScoreModelGrader,
    StringCheckGrader,
    TextSimilarityGrader,
)

from wanderlust.cli.main import main
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Rollout, Task, ToolCall, Trajectory, Turn, assistant, user
from wanderlust_graded.environment import GradedRows, fill_template, load_grader

ITEM = {"answer": "Paris", "list": [{"n": 3}], "number": 7}
EXACT = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{ item.answer }}",
    "operation": "eq",
}
CLOSE = {
    "type": "text_similarity",
    "name": "close",
    "input": "{{sample.output_text}}",
    "reference": "the capital is {{item.answer}}",
    "evaluation_metric": "fuzzy_match",
}
SCRIPT = {
    "type": "python",
    "name": "script",
    "source": "def grade(sample, item):\n    return len(sample['output_text']) / item['number']\n",
}
MODEL = {
    "type": "score_model",
    "name": "model",
    "model": "gpt-small",
    "range": [0, 5],
    "input": [
        {"role": "developer", "content": "Compare."},
        {"role": "user", "content": [{"type": "input_text", "text": "{{sample.output_text}} with {{item.answer}}"}]},
    ],
}
MULTI = {
    "type": "multi",
    "name": "both",
    "graders": {"exact": EXACT, "close": CLOSE},
    "calculate_output": "0.5 * exact + max(close, 0.25) ^ 2 - 0.1",
}


def score(grader, said, **more):
    """The score of an answer."""
    action = said if not isinstance(said, str) else assistant(said)
    task = Task(id="t", prompt=(user("?"),), info={"item": ITEM})
    trajectory = Trajectory(turns=[Turn(observation=(user("?"),), action=action)])
    return asyncio.run(load_grader(grader, **more).score(Rollout(task=task, seed=0), trajectory))


@pytest.mark.parametrize(
    ("model", "source"),
    [
        (StringCheckGrader, EXACT),
        (TextSimilarityGrader, CLOSE),
        (PythonGrader, SCRIPT),
        (ScoreModelGrader, MODEL),
    ],
)
def test_the_graders_of_these_tests_are_as_the_sdk_types_them(model, source):
    assert model.model_validate(source).to_dict() == source


def test_a_multi_grader_of_the_sdk_is_read():
    one = MultiGrader.model_validate(MULTI | {"graders": EXACT, "calculate_output": "exact * 2"}).to_dict()
    assert score(one, "Paris").reward == 2.0
    with pytest.raises(UsageError, match="needs graders by name"):
        load_grader(one | {"graders": []})


@pytest.mark.parametrize(
    ("operation", "said", "wanted"),
    [
        ("eq", "Paris", 1),
        ("eq", "paris", 0),
        ("ne", "Rome", 1),
        ("like", "It is Paris.", 1),
        ("like", "it is paris.", 0),
        ("ilike", "it is PARIS.", 1),
    ],
)
def test_string_checks(operation, said, wanted):
    assert score(EXACT | {"operation": operation}, said).reward == wanted


@pytest.mark.parametrize(
    "metric",
    ["fuzzy_match", "bleu", "gleu", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l"],
)
def test_similarities_are_one_for_equal_texts_and_less_for_others(metric):
    grader = CLOSE | {"evaluation_metric": metric, "reference": "the capital of the country is {{item.answer}}"}
    assert score(grader, "the capital of the country is Paris").reward == pytest.approx(1.0)
    near, far = score(grader, "the capital of the country was Rome").reward, score(grader, "bananas").reward
    assert 0 <= far < near < 1


def test_a_multi_grader_computes_its_formula_and_records_its_parts():
    found = score(MULTI, "the capital is Paris")
    assert found.reward == pytest.approx(0.5 * 0 + 1 - 0.1)
    assert found.metrics == {"both/exact": 0.0, "both/close": 1.0}
    assert score(MULTI, "Paris").reward == pytest.approx(0.5 + max(found_close("Paris"), 0.25) ** 2 - 0.1)


def found_close(said):
    return score(CLOSE, said).reward


def test_python_graders_run_in_the_sandbox():
    assert score(SCRIPT, "abc").reward == pytest.approx(3 / 7)
    noisy = {"type": "python", "source": "print('1.5')\ndef grade(sample, item):\n    print('2')\n    return 0.25"}
    assert score(noisy, "x").reward == 0.25
    tools = {
        "type": "python",
        "source": "def grade(sample, item): return float(sample['output_tools'][0]['id'] == 'c')",
    }
    assert score(tools, assistant("", ToolCall(id="c", name="f", arguments="{}"))).reward == 1
    broken = {"type": "python", "source": "def grade(sample, item): return item['missing']"}
    with pytest.raises(RubricFailure, match="the script gave no number: KeyError: 'missing'"):
        score(broken, "x")


def test_score_models_are_asked_with_the_filled_messages():
    asked = []

    def judge(messages, rng):
        asked.append(messages)
        return '{"result": 4.5}'

    assert score(MODEL, "Rome", models=lambda name: Scripted(judge)).reward == 4.5
    ((first, second, form),) = asked
    assert (first.role, first.content, second.content) == ("system", "Compare.", "Rome with Paris")
    assert "from 0 to 5" in form.content
    with pytest.raises(RubricFailure, match="no score from 0 to 5"):
        score(MODEL, "Rome", models=lambda name: Scripted(lambda messages, rng: '{"result": 9}'))
    with pytest.raises(UsageError, match="asks the model 'gpt-small': say which policy stands for it"):
        load_grader(MODEL)


def test_variables_are_paths_and_a_missing_one_is_no_zero():
    names = {"item": ITEM, "sample": {"output_json": {"a": {"b": "x"}}}}
    assert fill_template("{{item.list[0].n}} {{ item.number }} {{sample.output_json.a.b}}", names) == "3 7 x"
    assert fill_template("{{item.list}}", names) == '[{"n": 3}]'
    with pytest.raises(RubricFailure, match=r"there is no item\.other to grade with"):
        score(EXACT | {"reference": "{{item.other}}"}, "x")
    with pytest.raises(RubricFailure, match=r"there is no sample\.output_json\.a to grade with"):
        score(EXACT | {"input": "{{sample.output_json.a}}"}, "no JSON")


@pytest.mark.parametrize(
    ("grader", "why"),
    [
        ({"type": "label_model"}, "the grader has the type 'label_model'; the types are string_check"),
        ({}, "the grader has the type None"),
        (EXACT | {"operation": "same"}, "has the operation 'same'; known here are eq, ne, like, ilike"),
        (CLOSE | {"evaluation_metric": "cosine"}, "the evaluation_metric 'cosine'; known here are fuzzy_match"),
        (EXACT | {"reference": "{{answer}}"}, r"\{\{answer\}\} is no variable: they begin with item. or sample."),
        (EXACT | {"input": None}, "the grader needs a text as its input"),
        ({"type": "python", "source": "def grade("}, "the script has a mistake in line 1"),
        ({"type": "python", "source": "x = 1"}, r"the script defines no function grade\(sample, item\)"),
        (MULTI | {"calculate_output": "exact + other"}, "names 'other'; the graders are exact, close"),
        (MULTI | {"calculate_output": "exact +"}, "is no formula"),
        (MULTI | {"calculate_output": "__import__('os')"}, "names '__import__'"),
        (MULTI | {"calculate_output": "exact.real"}, "has more than numbers, graders and functions"),
        (MULTI | {"graders": {"a": {"type": "x"}}}, "the grader, a has the type 'x'"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(grader, why):
    with pytest.raises(UsageError, match=why) as error:
        load_grader(grader)
    assert "\n" not in str(error.value)


def rows(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_data_file_and_a_grader_are_an_environment(tmp_path, capsys):
    data = rows(
        tmp_path / "rows.jsonl",
        {"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "Capital?"}], "answer": "yes"},
        {"messages": [{"role": "user", "content": "Other?"}], "answer": "no"},
    )
    (tmp_path / "grader.json").write_text(json.dumps({"grader": EXACT}))
    (tmp_path / "says.py").write_text("from wanderlust import Scripted\nYes = Scripted(lambda messages, rng: 'yes')\n")
    env = GradedRows(str(data), str(tmp_path / "grader.json"))
    assert [m.role for m in env.tasks("train")[0].prompt] == ["system", "user"]
    command = [
        "eval",
        f"graded,data={data},grader={tmp_path / 'grader.json'}",
        "--policy",
        f"{tmp_path / 'says.py'}:Yes",
    ]
    with pytest.raises(SystemExit) as end:
        main([*command, "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["report"]["rewards"]["agent"]["value"] == 0.5
    for broken, why in (({"prompt": "x"}, "a row needs its prompt"), ({"messages": [{}], "tools": [1]}, "with tools")):
        rows(data, broken)
        with pytest.raises(UsageError, match=f"rows.jsonl.* 1: .*{why}"):
            GradedRows(str(data), str(tmp_path / "grader.json"))
    with pytest.raises(UsageError, match="cannot read the grader"):
        GradedRows(str(data), str(tmp_path / "none.json"))
