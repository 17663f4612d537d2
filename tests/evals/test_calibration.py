"""How far judges can be trusted, and what another rubric would have said."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from wanderlust.cli.judge_gap import JudgeGapOptions
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.evals.judge_calibration import ItemVerdicts, best_of, calibrate
from wanderlust.policies.resolve import PolicyOptions
from wanderlust.store.store import RunStore

SCRIPTS = r"""
import json, re
from wanderlust.rubrics.rubric import Reward, held_out
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Score


def fair(messages, rng):
    told = messages[-1].content
    if "<attempt 1>" in told:
        shown = re.findall(r"<attempt \d+>\n(.*?)\n</attempt>", told, re.DOTALL)
        scores = [float("right" in text) for text in shown]
        return json.dumps([{"attempt": n, "score": s} for n, s in enumerate(scores, 1)])
    return json.dumps({"score": 10 if "right" in told.split("<answer>")[1] else 0, "reason": "read"})


def long(messages, rng):
    told = messages[-1].content
    if "<attempt 1>" in told:
        return json.dumps([{"attempt": n + 1, "score": 1 - n / 9} for n in range(told.count("<attempt "))])
    said = told.split("<answer>")[1]
    return json.dumps({"score": min(10, len(said) // 20)})


def silent(messages, rng):
    return "no comment"


def shy(messages, rng):
    return "I cannot judge people's work."


def yes_no(messages, rng):
    assert [message.role for message in messages][:2] == ["user"] or "<attempt" in messages[-1].content
    return "Yes." if "right" in messages[-1].content.split("Response:")[-1] else "No."


def affirming(messages, rng):
    return "Yes."


def lenient(messages, rng):
    told = messages[-1].content
    said = told.split("<answer>")[1]
    return json.dumps({"score": 1 if "polite" in told.split("<answer>")[0] else int("right" in said)})


def shouting(completion):
    return float(completion.isupper())


def many(completions):
    return [float(len(set(completions)) > 1)] * len(completions)


def broken(completion):
    return 1 / 0


class Endless:
    async def score(self, rollout, trajectory):
        return Score(reward=float("inf"))


endless = Endless()


loud = Rubric(shouting, held_out(many))
"""


def verdicts(accept_right: float, accept_wrong: float, count: int = 200, votes: int = 1) -> list[ItemVerdicts]:
    rng = Random(3)
    out = []
    for n in range(count):
        label = n % 2 == 0
        chance = accept_right if label else accept_wrong
        scores = tuple(float(rng.random() < chance) for _ in range(2))[:votes]
        out.append(ItemVerdicts(label=label, scores=scores, length=rng.randint(1, 99)))
    return out


def test_errors_are_measured_with_intervals():
    found = calibrate(verdicts(0.9, 0.3))
    assert found.items == 200
    assert found.true_positives is not None
    assert found.false_positives is not None
    assert found.true_positives.low < 0.9 < found.true_positives.high
    assert found.false_positives.low < 0.3 < found.false_positives.high
    assert found.kappa is not None
    assert 0.4 < found.kappa.value < 0.75
    assert found.length is not None
    assert found.length.low < 0 < found.length.high
    assert found.informative == pytest.approx(0.6, abs=0.12)


def test_the_mean_of_the_votes_counts_and_the_threshold_is_the_callers():
    """Votes of .9 and .3: the judge that is calibrated is the one that means over its votes."""
    items = [ItemVerdicts(label=True, scores=(0.2, 0.9, 0.9), length=n) for n in range(5)]
    items += [ItemVerdicts(label=False, scores=(0.9, 0.2, 0.2), length=n) for n in range(5)]
    for threshold, right, wrong in ((0.5, 1.0, 0.0), (0.4, 1.0, 1.0), (0.7, 0.0, 0.0)):
        found = calibrate(items, pass_threshold=threshold)
        assert (found.true_positives.value, found.false_positives.value) == (right, wrong)
    tied = [ItemVerdicts(label=True, scores=(0.0, 1.0), length=1)]
    assert calibrate(tied, pass_threshold=0.5).accuracy.value == 1.0  # at least the threshold
    two = calibrate(verdicts(0.9, 0.3, votes=2), pass_threshold=0.75)  # accepted by both
    assert two.true_positives.low < 0.81 < two.true_positives.high
    assert two.false_positives.low < 0.09 < two.false_positives.high


def test_kappa_is_cohens():
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: 0.4 (Cohen 1960's formula by hand)."""
    seen = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    found = calibrate(
        [ItemVerdicts(label=bool(truth), scores=(float(said),), length=n) for n, (said, truth) in enumerate(seen)]
    )
    assert found.kappa is not None
    assert found.kappa.value == pytest.approx(0.4)
    assert found.agreement is None


def test_a_judge_pleased_by_length_is_seen():
    judged = [ItemVerdicts(label=n % 2 == 0, scores=(n / 60,), length=n) for n in range(60)]
    found = calibrate(judged)
    assert found.length is not None
    assert found.length.low is not None
    assert found.length.low > 0.3


def test_what_cannot_be_told_is_none():
    found = calibrate([ItemVerdicts(label=True, scores=(1.0,), length=3)])
    assert (found.false_positives, found.kappa, found.length, found.order_flips) == (None, None, None, None)
    with pytest.raises(UsageError, match="nothing to calibrate"):
        calibrate([])


def test_the_gap_between_choosing_and_not():
    gap = best_of(2 * [[(0.9, 1.0), (0.1, 0.0)], [(0.2, 1.0), (0.8, 0.0)], [(0.5, 1.0), (0.4, 0.0)]])
    assert (gap.chosen.value, gap.ideal.value, gap.mean.value) == (pytest.approx(2 / 3), 1.0, 0.5)
    assert (gap.gained.value, gap.possible.value, gap.share) == (pytest.approx(1 / 6), 0.5, pytest.approx(1 / 3))
    assert gap.gained.low < 0 < gap.gained.high
    undecided = best_of([[(0.5, 1.0), (0.5, 0.0)], [(0.5, 0.0), (0.5, 0.0)]])
    assert (undecided.chosen.value, undecided.share) == (undecided.mean.value, 0.0)
    assert best_of([[(0.1, 1.0), (0.9, 1.0)]]).share is None
    with pytest.raises(UsageError, match="no groups"):
        best_of([[]])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made.py").write_text(SCRIPTS)
    items = []
    for n in range(20):
        for label in (True, False):
            said = "it is right" if label else "it is wrong " + "and long " * n
            items.append({"prompt": f"question {n}", "completion": said, "label": label})
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, items)) + "\n\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


def test_the_command_tells_a_fair_judge_from_one_that_likes_length(place, capsys):
    code, out, _ = ran(capsys, "judge", "calibrate", "items.jsonl", "--policy", "made.py:fair", "--json")
    fair = json.loads(out)
    assert (code, fair["accuracy"]["value"], fair["order_flips"]["value"]) == (0, 1.0, 0.0)
    code, out, _ = ran(capsys, "judge", "calibrate", "items.jsonl", "--policy", "made.py:long", "--json")
    long = json.loads(out)
    assert long["false_positives"]["value"] > 0.3
    assert long["length"]["low"] > 0.3
    assert long["order_flips"]["value"] == 1.0
    code, out, _ = ran(capsys, "judge", "calibrate", "items.jsonl", "--policy", "made.py:long")
    assert "training on it makes a policy worse" in out


def test_a_judge_that_always_says_yes_is_told_apart_from_a_good_one():
    assert calibrate(verdicts(1.0, 0.95)).always_yes  # though it accepts more of the right ones
    assert not calibrate(verdicts(1.0, 0.6)).always_yes
    assert not calibrate([ItemVerdicts(label=True, scores=(1.0,), length=3)]).always_yes


def test_each_criterion_has_its_figures_and_a_yes_to_everything_is_said(place, capsys):
    items = [
        {"prompt": f"question {n}", "completion": f"it is {'right' if n % 2 else 'wrong'}", "label": bool(n % 2)}
        for n in range(20)
    ]
    criteria = ("Is it right?", "Is it polite?")
    lines = [json.dumps({**item, "criterion": criterion}) for item in items for criterion in criteria]
    (place / "criteria.jsonl").write_text("\n".join(lines))
    words = ("judge", "calibrate", "criteria.jsonl", "--policy", "made.py:lenient")
    code, out, _ = ran(capsys, *words, "--json")
    found = json.loads(out)["criteria"]
    shares = {name: (one["accuracy"]["value"], one["false_positives"]["value"]) for name, one in found.items()}
    assert (code, shares) == (0, {"Is it right?": (1.0, 0.0), "Is it polite?": (0.5, 1.0)})
    assert ran(capsys, *words)[1].count("says yes to nearly") == 1
    (place / "all.jsonl").write_text("\n".join(line for line in lines if "polite" in line))
    out = ran(capsys, "judge", "calibrate", "all.jsonl", "--policy", "made.py:lenient")[1]
    assert "It accepts 100% of the wrong answers: it says yes to nearly everything." in out
    (place / "mixed.jsonl").write_text("\n".join([lines[0], json.dumps(items[0])]))
    code, _, err = ran(capsys, "judge", "calibrate", "mixed.jsonl", "--policy", "made.py:lenient")
    assert (code, "with and without a criterion" in err) == (2, True)


def test_the_threshold_is_an_option(place, capsys):
    words = ("judge", "calibrate", "items.jsonl", "--policy", "made.py:long", "--json")
    shares = [json.loads(ran(capsys, *words, "--threshold", at)[1])["false_positives"]["value"] for at in ("0.01", "1")]
    assert shares[0] > shares[1]
    assert ran(capsys, *words, "--threshold", "0")[0] == 2
    code, _, err = ran(capsys, "judge", "gap", "tictactoe", "--policy", "teacher", "--threshold", "0.7")
    told = "wander judge gap has no option --threshold: it is for wander judge calibrate"
    assert (code, err.splitlines()) == (2, [f"wander: {told}"])


def test_a_judge_without_verdicts_is_an_error_and_no_zero(place, capsys):
    code, _, err = ran(capsys, "judge", "calibrate", "items.jsonl", "--policy", "made.py:silent")
    assert code == 1
    assert "none of 40 items has a verdict: no verdict in 3 answers; the last: JSON" in err
    code, _, err = ran(capsys, "judge", "calibrate", "items.jsonl", "--policy", "made.py:shy")
    assert code == 1
    assert "none of 40 items has a verdict (40 refused): no verdict: the model declined: I cannot" in err


def test_a_published_prompt_is_measured_as_it_is(place, capsys):
    (place / "prompt.txt").write_text("Question: {prompt}\nResponse: {completion}\nRespond yes or no only.")
    words = ("judge", "calibrate", "items.jsonl", "--policy", "made.py:yes_no", "--json")
    code, out, _ = ran(capsys, *words, "--template", "prompt.txt", "--yes-no")
    assert (code, json.loads(out)["accuracy"]["value"]) == (0, 1.0)
    code, _, err = ran(capsys, *words, "--yes-no")
    assert code == 2
    assert "needs a --template" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["judge", "measure", "items.jsonl"], "has no command 'measure'"),
        (["judge", "calibrate", "bad.jsonl"], "line 2 is no item"),
        (["judge", "calibrate", "empty.jsonl"], "has no items"),
        (["judge", "calibrate", "missing.jsonl"], "there is no such file"),
    ],
)
def test_mistakes_are_one_line(place, capsys, words, told):
    (place / "bad.jsonl").write_text('{"prompt": "a", "completion": "b", "label": true}\n{"prompt": 1}\n')
    (place / "empty.jsonl").write_text("\n")
    code, _, err = ran(capsys, *words, "--policy", "made.py:fair")
    assert code == 2
    assert told in err
    assert len(err.strip().splitlines()) == 1


def test_a_run_is_judged_again_and_left_as_it_was(place, capsys):
    evaluate = ["eval", "wordle", "--policy", "made.py:silent", "-n", "6", "--samples", "2", "--out", "runs/one"]
    assert ran(capsys, *evaluate)[0] == 0
    before = (place / "runs/one/rollouts.db").read_bytes()
    code, out, _ = ran(capsys, "rescore", "runs/one", "--rubric", "made.py:loud", "--out", "runs/two", "--json")
    body = json.loads(out)
    assert code == 0
    assert body["report"]["rewards"]["agent"]["value"] == 0.0
    assert body["report"]["metrics"]["many"]["value"] == 0.0
    assert (place / "runs/one/rollouts.db").read_bytes() == before
    with RunStore.read(place / "runs/two/rollouts.db") as reader:
        assert {row.reward for row in reader.rollouts()} == {0.0}
    assert ran(capsys, "compare", "runs/one", "runs/two")[0] == 0


@pytest.mark.parametrize(("rubric", "why"), [("broken", "division by zero"), ("endless", "no finite number")])
def test_a_judgement_that_fails_is_no_zero(place, capsys, rubric, why):
    evaluate = ["eval", "wordle", "--policy", "made.py:silent", "-n", "3", "--out", "runs/one"]
    assert ran(capsys, *evaluate)[0] == 0
    code, _, err = ran(capsys, "rescore", "runs/one", "--rubric", f"made.py:{rubric}")
    assert code == 1
    assert "3 rollouts have no score" in err
    assert why in err


class Model(BaseHTTPRequestHandler):
    """A model's server that keeps what it was asked."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers["Authorization"], body))
        said = json.dumps({"score": len(self.server.asked) % 11}) if body["model"] == "large" else f"{body['seed']}"
        message = {"role": "assistant", "content": said}
        answer = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Nothing on the terminal."""


@contextmanager
def model_server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        server.asked = []
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", server.asked
        server.shutdown()


def test_player_and_judge_have_each_their_endpoint(capsys, monkeypatch):
    monkeypatch.setenv("PLAYER_KEY", "p")
    monkeypatch.setenv("JUDGE_KEY", "j")
    with model_server() as (player, played), model_server() as (judge, judged):
        words = ("judge", "gap", "calculator", "-n", "2", "--samples", "2", "--votes", "1", "--schema", "--json")
        own = ("--policy", player, "--model", "small", "--temperature", "1", "--api-key", "PLAYER_KEY")
        other = ("--judge", judge, "--judge-model", "large", "--judge-temperature", "0", "--judge-max-tokens", "99")
        code, out, err = ran(capsys, *words, *own, *other, "--judge-api-key", "JUDGE_KEY")
    assert (code, json.loads(out)["without_verdict"], json.loads(out)["refused"]) == (0, 0, 0), err
    assert {key for key, _ in played} == {"Bearer p"}
    assert {(body["model"], body["temperature"], body.get("max_tokens")) for _, body in played} == {
        ("small", 1.0, None)
    }
    assert {key for key, _ in judged} == {"Bearer j"}
    assert {(body["model"], body["temperature"], body["max_tokens"]) for _, body in judged} == {("large", 0.0, 99)}
    assert {body["response_format"]["type"] for _, body in judged} == {"json_schema"}
    player_options = PolicyOptions(model="small", temperature=1.0, max_tokens=64, api_key="PLAYER_KEY")
    assert JudgeGapOptions().judge_options(player_options) == player_options


def test_a_cache_knows_every_setting_of_the_endpoint(place, capsys):
    """The same judge at another temperature or length is asked again, and at the same one not once."""
    items = [{"prompt": f"{label}?", "completion": "so", "label": label} for label in (True, False)]
    (place / "few.jsonl").write_text("\n".join(map(json.dumps, items)))
    with model_server() as (url, asked):
        words = ("judge", "calibrate", "few.jsonl", "--policy", url, "--model", "large", "--cache", "verdicts.db")
        counts = []
        for more in (["--temperature", "1"], ["--temperature", "1"], ["--temperature", "0"], ["--max-tokens", "7"]):
            before = len(asked)
            ran(capsys, *words, *more, "--votes", "1", "--json")
            counts.append(len(asked) > before)
    assert counts == [True, False, True, True]


def test_pairs_without_a_verdict_are_counted(place, capsys):
    """This judge answers in words alone, so it cannot compare two answers side by side."""
    (place / "prompt.txt").write_text("Question: {prompt}\nResponse: {completion}\nRespond yes or no only.")
    words = ("judge", "calibrate", "items.jsonl", "--policy", "made.py:affirming")
    words = (*words, "--template", "prompt.txt", "--yes-no")
    code, out, err = ran(capsys, *words, "--json")
    told = json.loads(out)
    assert (code, told["order_flips"], told["pairs_failed"]) == (0, None, 20)
    assert "20 of 20 pairs that change places have no verdict: no verdict in 3 answers" in err


@pytest.mark.parametrize("votes", [2, 3, 8])
@pytest.mark.parametrize(("yes", "no"), [(0.5, 0.5), (2.5, 2.5), (0.8, 0.2)])
def test_the_interval_of_agreement_holds_the_truth(votes, yes, no):
    """Items on which a judge says yes with a chance drawn by Beta(yes, no); pairs of one item are not independent."""
    mean, variance = yes / (yes + no), yes * no / ((yes + no) ** 2 * (yes + no + 1))
    truth, rng, held, runs = 2 * variance + mean**2 + (1 - mean) ** 2, Random(f"{votes}/{yes}"), 0, 400
    for _ in range(runs):
        items = []
        for _ in range(30):
            chance = rng.betavariate(yes, no)
            scores = tuple(float(rng.random() < chance) for _ in range(votes))
            items.append(ItemVerdicts(label=True, scores=scores, length=1))
        found = calibrate(items).agreement
        held += found.low <= truth <= found.high
    assert held / runs >= 0.93


@pytest.mark.parametrize(("right", "wrong", "share"), [(0.9, 0.1, 0.5), (0.7, 0.6, 0.5), (0.95, 0.05, 0.2)])
def test_the_interval_of_kappa_holds_the_truth(right, wrong, share):
    """`right` and `wrong` are the chances that a right and a wrong answer is accepted, `share` that of right ones."""
    agree, accepted = share * right + (1 - share) * (1 - wrong), share * right + (1 - share) * wrong
    chance = accepted * share + (1 - accepted) * (1 - share)
    truth, rng, held, runs = (agree - chance) / (1 - chance), Random(f"kappa/{right}"), 0, 400
    for _ in range(runs):
        items = []
        for _ in range(40):
            label = rng.random() < share
            scores = (float(rng.random() < (right if label else wrong)),)
            items.append(ItemVerdicts(label=label, scores=scores, length=1))
        found = calibrate(items).kappa
        held += found is not None and found.low <= truth <= found.high
    assert held / runs >= 0.93


def test_ten_right_items_do_not_prove_a_perfect_judge():
    items = [ItemVerdicts(label=n % 2 == 0, scores=(float(n % 2 == 0),) * 2, length=n) for n in range(10)]
    found = calibrate(items)
    assert (found.kappa.value, found.kappa.high) == (1.0, 1.0)
    assert found.kappa.low < 0.6
    assert found.agreement.low < 0.75
