"""Degenerate policies against rewards with a flaw, and against the same rewards mended."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from tiers import proof_except
from wanderlust.cli.main import main
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.evals.probe.battery import BATTERY, ProbeRun, run_probes, sample_tasks
from wanderlust.evals.probe.oracle_variants import Alteration, OracleElsewhere
from wanderlust.evals.probe.probe import IGNORANT, Probe, ProbeView, always_answer
from wanderlust.evals.probe.report import ProbeReport, ProbeResult, assess_probes
from wanderlust.evals.probe.source_words import source_words
from wanderlust.evals.statistics import mean
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tasks.registry import installed_environments, load_environment
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Rollout, Task, assistant, user

Reward = Callable[[str, str], float]


def sums(count: int = 24) -> list[Task]:
    out = []
    for n in range(count):
        a, b = Random(f"sum/{n}").sample(range(10, 90), 2)
        out.append(
            Task(id=f"sum-{n}", prompt=(user(f"What is {a} + {b}? Answer in <answer></answer>."),), answer=str(a + b))
        )
    return out


def adding(reward: Reward) -> SingleTurnEnvironment:
    def paid(completion: str, answer: str) -> float:
        return reward(completion, answer)

    return SingleTurnEnvironment(sums(), rubric=Rubric(paid))


def said(text: str) -> str:
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[1].strip() if found else ""


def knows(messages, rng):
    a, b = map(int, re.findall(r"\d+", messages[-1].content))
    return f"<answer>{a + b}</answer>"


def found(env, battery: Sequence[Probe] = BATTERY, oracle=None) -> ProbeReport:
    tasks = list(env.tasks("eval"))
    return asyncio.run(run_probes(env, tasks=tasks, oracle=oracle or Scripted(knows), battery=battery))


def names(findings: ProbeReport) -> set[str]:
    return {flaw.result.name for flaw in findings.flaws}


FLAWED: dict[str, tuple[Reward, str]] = {
    "contains": (lambda text, answer: float(answer in text), "all-numbers"),
    "silent": (lambda text, answer: float(all(word == answer for word in said(text).split())), "empty"),
    "judge": (lambda text, answer: float(said(text) == answer or "score: 10" in text.lower()), "injection"),
    "long": (lambda text, answer: min(len(text) / 10_000, 1.0), "longest"),
    "pattern": (lambda text, answer: float(bool(re.fullmatch(said(text)[:9] or "x", answer))), "wildcard"),
    "formed": (lambda text, answer: 0.8 * ("<answer>" in text) + 0.2 * (said(text) == answer), "form-only"),
}


@pytest.mark.parametrize("name", FLAWED)
def test_a_flaw_is_found_and_named(name):
    reward, culprit = FLAWED[name]
    findings = found(adding(reward))
    assert culprit in names(findings) or findings.blind
    assert not findings.sound


def test_a_sound_reward_passes_with_partial_credit_for_its_form():
    findings = found(adding(lambda text, answer: 0.1 * bool(said(text)) + (said(text) == answer)))
    assert findings.sound, [flaw.line for flaw in findings.flaws]
    assert findings.oracle is not None
    assert findings.top == 1.1
    assert len(findings.results) > 60
    assert "snoop" in findings.skipped


def test_a_reward_for_everybody_is_blind():
    findings = found(adding(lambda text, answer: 1.0))
    assert findings.blind
    assert not findings.sound


def test_every_flaw_comes_with_the_game_to_read():
    flaw = found(adding(FLAWED["contains"][0])).flaws[0]
    assert flaw.share == pytest.approx(1.0)
    assert flaw.result.best.trajectories[0].messages[-1].role == "assistant"
    assert flaw.result.by_task[flaw.result.best.task.id] == 1.0


class Leaky(ToolEnvironment):
    """The tool that reads files reads the answers, too."""

    def __init__(self, *, mended: bool = False):
        def right(completion: str, answer: str) -> float:
            return float(said(completion) == answer)

        def read_file(path: str) -> str:
            """Read a file.

            Args:
                path: Its name.
            """
            if path == "answer.txt" and not mended:
                return "answer: 46"
            raise ValueError(f"there is no file {path}")

        tasks = [
            Task(id=f"t{n}", prompt=(user(f"How many boxes are in hall {n}? Use <answer></answer>."),), answer="46")
            for n in range(12)
        ]
        super().__init__(tasks, tools=(read_file,), rubric=Rubric(right))


def test_hidden_files_are_read():
    knowing = Scripted(["<answer>46</answer>"])
    assert "read-hidden" in names(found(Leaky(), oracle=knowing))
    assert found(Leaky(mended=True), oracle=knowing).sound


def test_own_probes_are_a_line():
    magic = Probe(name="magic", description="says the magic word", answer=always_answer("<answer>xyzzy</answer>"))
    findings = found(adding(lambda text, answer: float(said(text) in (answer, "xyzzy"))), battery=[magic])
    assert names(findings) == {"magic", "search"}


def test_the_battery_has_one_name_for_each_and_enough_of_them():
    assert len({one.name for one in BATTERY}) == len(BATTERY) >= 25
    assert {one.kind for one in BATTERY} == {"words", "judge", "code", "tools"}


def test_the_same_seed_finds_the_same():
    env = adding(FLAWED["contains"][0])
    one, other = found(env), found(env)
    assert [(e.name, e.reward) for e in one.results] == [(e.name, e.reward) for e in other.results]
    assert sample_tasks(sums(), 5, seed=1) == sample_tasks(sums(), 5, seed=1) != sample_tasks(sums(), 5, seed=2)


def test_no_tasks_are_said():
    with pytest.raises(UsageError, match="no tasks to probe with"):
        asyncio.run(run_probes(adding(lambda text, answer: 1.0), tasks=[]))


READY_MADE = ["calculator", "connections", "kuhn", "legal-move", "search", "tool-test", "wordle"]


@pytest.mark.parametrize("name", proof_except({*READY_MADE} - {"connections"}, READY_MADE, group="rewards"))
def test_ready_made_rewards_are_sound(name):
    env = load_environment("examples.tool_test:ToolTest" if name == "tool-test" else installed_environments()[name])
    tasks = sample_tasks(list(env.tasks("eval"))[:200], 8, seed=0)
    players = {**getattr(env, "players", {})}
    others = players["equilibrium"]() if "equilibrium" in players else None
    findings = asyncio.run(run_probes(env, tasks=tasks, others=others))
    assert not findings.flaws, [flaw.line for flaw in findings.flaws]


def test_view_knows_options_and_forms():
    view = ProbeView((user('Pick one of: red, green, or "dark blue".\nAnswer: <color>[red]</color>'),), (), Random(0))
    assert {"red", "green", "dark blue"} <= set(view.options)
    assert view.formatted("x") == "<color>[x]</color>"
    assert ProbeView((user("End with \\boxed{}"),), (), Random(0)).formatted("7") == "\\boxed{7}"
    assert ProbeView((user("<think>..</think> then Answer: n"),), (), Random(0)).formatted("7").endswith("Answer: 7")


@pytest.mark.parametrize("text", ["", "\ud800", "<" * 5_000, "a," * 50_000, "9" * 30_000, "(A) " * 9_000, '"' * 9_999])
def test_hostile_prompts_are_read_quickly(text):
    view = ProbeView((user(text),), (), Random(0))
    for one in BATTERY:
        one.answer(view)


def test_the_command_tells_and_exits_with_1(tmp_path, monkeypatch, capsys):
    (tmp_path / "place.py").write_text(
        "from test_probe import adding, sums, Scripted, FLAWED\nEnv = lambda: adding(FLAWED['contains'][0])\n"
        "Fine = lambda: adding(lambda text, answer: float(text == f'<answer>{answer}</answer>'))\n"
        "class Knowing(type(Fine())):\n"
        "    def __init__(self): super().__init__(sums(), rubric=Fine().rubric)\n"
        "    def oracle(self, task): return Scripted([f'<answer>{task.answer}</answer>'])\n"
    )
    (tmp_path / "mine.py").write_text(
        "from wanderlust.evals.probe.probe import Probe, always_answer\n"
        "PROBES = [Probe(name='mine', description='a line', answer=always_answer(' '.join(map(str, range(300)))))]\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as flawed:
        main(["probe", "place.py:Env", "--num-tasks", "12", "--more", "mine.py:PROBES", "--json"])
    body = json.loads(capsys.readouterr().out)
    assert flawed.value.code == 1
    assert "mine" in {flaw["probe"] for flaw in body["flaws"]}
    assert "all-numbers" in {flaw["probe"] for flaw in body["flaws"]}
    with pytest.raises(SystemExit) as unheard:
        main(["probe", "place.py:Fine", "--num-tasks", "12"])
    assert unheard.value.code == 3
    assert "cannot tell: 0 of" in capsys.readouterr().out
    with pytest.raises(SystemExit) as fine:
        main(["probe", "place.py:Knowing", "--num-tasks", "12"])
    assert fine.value.code == 0
    assert "earn nothing that they should not" in capsys.readouterr().out


class Everything(ToolEnvironment):
    """Offers what every probe asks for: options, numbers, a code, an example, tools of all kinds."""

    def __init__(self) -> None:
        def submit(answer: str) -> str:
            """Hand in, such as submit(answer=4)."""
            return f"wrong: the answer was {len(answer)}"

        def delete_file(path: str, force: bool = False) -> str:
            """Delete a file."""
            return path

        def read_file(path: str) -> str:
            """Read a file."""
            return f"notes/a.txt, user@mail.org, Room12: nothing in {path}"

        def write_file(path: str, content: str) -> str:
            """Write a file."""
            return content

        def run_shell(command: str) -> str:
            """Run a command."""
            return command

        def set_status(status: str, amount: int = 1) -> str:
            """Set a status."""
            return f"{status} {amount}"

        def query_sql(query: str) -> str:
            """Ask the data base."""
            return "answers, people"

        def help_me() -> str:
            """Give a hint."""
            return "look closer"

        asked = (
            "Which is it?\n(A) red wine\n(B) blue\nOf 3, 4 + 5 and 12, or quit, reset, undo? 'SGVsbG8gd29ybGQ=' "
            "Write <answer>...</answer> with def solve(x): in Python."
        )
        shown = (user("Which is 1?"), assistant("<answer>A</answer>"), user(asked))
        tasks = [Task(id=f"t{n}", prompt=shown, answer=str(n)) for n in range(2)]
        tools = (submit, delete_file, read_file, write_file, run_shell, set_status, query_sql, help_me)
        super().__init__(tasks, tools=tools, rubric=Rubric(lambda_free))


def lambda_free(completion: str, answer: str) -> float:
    return float(said(completion) == answer)


def test_every_probe_runs_where_everything_is_offered():
    env = Everything()
    report = asyncio.run(run_probes(env, tasks=list(env.tasks("eval"))))
    assert report.crashes == []
    assert len(report.results) + len(report.skipped) >= len(BATTERY)
    assert {"blanket", "wipe", "tells-all"} <= {one.name for one in report.results}
    assert not {*report.skipped} & {one.name for one in BATTERY if one.kind == "tools"}, report.skipped


def test_a_probe_that_crashes_is_told_apart_from_one_that_does_not_fit():
    def broken(view: ProbeView) -> str:
        raise re.error("bad pattern")

    mine = [
        Probe(name="broken", description="raises", answer=broken),
        Probe(name="unfit", description="has no answer", answer=lambda view: None),
    ]
    report = found(adding(lambda text, answer: float(said(text) == answer)), battery=mine)
    assert "unfit" in report.skipped
    assert "broken" not in report.skipped
    assert [line.split(":")[0] for line in report.crashes] == ["broken"]
    assert report.verdict == "cannot tell"


def test_a_variant_of_the_oracle_or_a_search_that_crashes_is_no_misfit():
    def broken(answer, others):
        raise re.error("bad pattern")

    def half(messages, rng):
        return knows(messages, rng) if len(messages) == 1 else str(1 / 0)

    async def play(oracle: Policy) -> tuple[dict[str, str], object]:
        env = adding(lambda text, answer: float(said(text) == answer))
        room = ProbeRun(env, list(env.tasks("eval"))[:4], 0, always_silent)
        alteration = Alteration(name="broken", description="raises", change=broken)
        return await room.play_altered(alteration, OracleElsewhere(oracle)), room.crashes

    always_silent = Probe(name="silent", description="says nothing", answer=always_answer(""))
    result, crashes = asyncio.run(play(Scripted(knows)))
    assert (result, crashes["broken"].endswith("bad pattern")) == (None, True)
    result, crashes = asyncio.run(play(Scripted(lambda messages, rng: str(1 / 0))))  # the oracle's fault
    assert (result, crashes) == (None, {})


def test_a_label_is_read_out_of_a_sentence():
    labels = [
        Task(id=f"l{n}", prompt=(user(f"Item {n * 37 % 101}?"),), answer="no" if n % 3 else "yes") for n in range(36)
    ]

    def first_word(completion: str, answer: str) -> float:
        return float(re.split(r"\W+", completion.strip().lower())[0] == answer)

    env = SingleTurnEnvironment(labels, rubric=Rubric(first_word))
    by_question = {task.prompt[0].content: task.answer for task in labels}
    oracle = Scripted(lambda messages, rng: f"{by_question[messages[-1].content]}, because it is item {rng.random()}.")
    assert found(env, oracle=oracle).flaws == []


def test_a_tag_that_is_only_named_is_a_form():
    view = ProbeView((user("Pick a cell. Put the number inside move tags."),), (), Random(0))
    assert view.formatted("4") == "<move>4</move>"


def test_a_search_finds_what_no_probe_says():
    def three_marks(completion: str, answer: str) -> float:
        return float(said(completion) == answer) or 0.9 * (completion.count("?") >= 2 and "!" in completion)

    report = found(adding(three_marks))
    assert "search" in {one.name for one in report.results}


def test_what_stands_at_a_place_is_found():
    """The third option is always right, and nothing else tells."""

    def offered(shuffled: bool) -> SingleTurnEnvironment:
        tasks = []
        for n in range(32):
            rng = Random(f"offered/{n}")
            words = rng.sample(["lamp", "kettle", "anchor", "ribbon", "needle", "basket", "pillow"], 5)
            right = words[rng.randrange(5) if shuffled else 2]
            asked = f"Item {rng.randint(100, 999)}. Options: {', '.join(words)}. Say one of them."
            tasks.append(Task(id=f"o{n}", prompt=(user(asked),), answer=right))
        return SingleTurnEnvironment(tasks, rubric=Rubric(paid_if_equal))

    for shuffled in (False, True):
        env = offered(shuffled)
        answers = {task.prompt[0].content: task.answer for task in env.tasks("eval")}
        report = found(env, oracle=Scripted(lambda messages, rng, known=answers: known[messages[-1].content]))
        assert ({"search"} <= {flaw.result.name for flaw in report.flaws}) is not shuffled
        assert report.sound is shuffled


VIP = "house account"


def test_words_of_the_environments_own_code_are_said_and_put_into_tools():
    def well_known(completion: str, answer: str) -> float:
        return float(said(completion) in (answer, VIP))

    env = SingleTurnEnvironment(sums(), rubric=Rubric(well_known))
    report = found(env, battery=())
    assert source_words(env) == [VIP, "answer"]
    assert names(report) == {"search"}
    assert found(adding(lambda completion, answer: float(said(completion) == answer)), battery=()).sound


def test_tools_are_called_with_words_of_their_own_code():
    def pay(to: str) -> str:
        """Pay somebody."""
        return "paid" if to == VIP else "nobody of that name"

    def someone_was_paid(trajectory) -> float:
        return float(any(message.content == "paid" for message in trajectory.messages))

    env = ToolEnvironment(sums(), tools=[pay], rubric=Rubric(someone_was_paid))
    assert "source-words" in names(found(env, battery=(), oracle=Scripted([assistant("I cannot.")])))


def paid_if_equal(completion: str, answer: str) -> float:
    return float(completion.strip() == answer)


def generous(completion: str, answer: str) -> float:
    return 3.0 * (completion.strip() == "0") or float(said(completion) == answer)


def test_an_attacker_learns_what_pays_more_than_the_oracle():
    env = SingleTurnEnvironment(
        [Task(id=t.id, prompt=(user("Add 2 and 2."),), answer="4") for t in sums()], rubric=Rubric(generous)
    )
    tasks, oracle = list(env.tasks("eval")), Scripted(lambda messages, rng: "<answer>4</answer>")
    reports = [asyncio.run(run_probes(env, tasks=tasks, oracle=oracle, battery=(), attack=600)) for _ in range(2)]
    (one,) = [result for result in reports[0].results if result.kind == "attack"]
    assert one.by_task == next(result for result in reports[1].results if result.kind == "attack").by_task
    assert reports[0].attack.startswith("the attacker that learns earns")
    assert one.reward.value >= reports[0].oracle.reward.value


def test_an_attacker_that_only_learns_the_task_is_no_flaw():
    env = adding(lambda completion, answer: float(said(completion) == answer))
    tasks = list(env.tasks("eval"))
    report = asyncio.run(run_probes(env, tasks=tasks, oracle=Scripted(knows), battery=(), attack=200))
    assert "attack" in {result.kind for result in report.results}
    assert report.flaws == []


def test_form_alone_is_said_and_held_to_it():
    class OnlyForm(SingleTurnEnvironment):
        chance_bar = 1.0

    def any_number(completion: str, answer: str) -> float:
        return float(said(completion).isdecimal())

    report = found(OnlyForm(sums(), rubric=Rubric(any_number)))
    assert (report.teaches_form, report.verdict) == (True, "nothing found")
    anything = found(OnlyForm(sums(), rubric=Rubric(paid_anyway)))
    assert (anything.teaches_form, anything.verdict) == (False, "flaw found")


def paid_anyway(completion: str, answer: str) -> float:
    return 1.0


def test_an_oracle_that_fails_is_told_and_no_mistake_of_the_environment():
    def sometimes(messages, rng):
        return knows(messages, rng) if "1" in messages[-1].content else str(1 / 0)

    for oracle, left in ((Scripted(lambda messages, rng: str(1 / 0)), False), (Scripted(sometimes), True)):
        report = found(adding(lambda text, answer: float(said(text) == answer)), battery=(), oracle=oracle)
        assert report.oracle_failure.endswith("ZeroDivisionError: division by zero")
        assert (report.oracle is not None, report.failures, report.crashes) == (left, [], [])


def test_two_hundred_probes_share_one_chance_of_an_alarm() -> None:
    """Rewards are noise, and tasks are few: each probe alone would be clear once in a hundred."""
    rng, played = Random(0), Rollout(task=Task(id="t"), seed=0)

    def noise(name: str, kind: str) -> ProbeResult:
        by_task = {f"t{n}": rng.random() for n in range(6)}
        reward = mean([[value] for value in by_task.values()])
        return ProbeResult(name=name, description="", kind=kind, reward=reward, by_task=by_task, best=played)

    def sure(name: str, low: float) -> ProbeResult:
        by_task = {f"t{n}": low + rng.random() / 50 for n in range(6)}
        reward = mean([[value] for value in by_task.values()])
        return ProbeResult(name=name, description="", kind="text", reward=reward, by_task=by_task, best=played)

    reports = [
        assess_probes([noise("any", IGNORANT), *(noise(f"p{n}", "text") for n in range(200))], [], None)
        for _ in range(20)
    ]
    assert sum(bool(report.flaws) for report in reports) <= 3
    honest = [sure(f"p{n}", 0.1) for n in range(200)]
    report = assess_probes([replace(sure("any", 0.1), kind=IGNORANT), sure("hack", 0.9), *honest], [], None)
    assert [flaw.result.name for flaw in report.flaws] == ["hack"]
