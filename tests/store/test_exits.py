"""Whatever text is in a rollout comes out of every exit as it is, or is visibly escaped or cut."""

from __future__ import annotations

import io
import json
import logging
import random
import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from project_files import python_files
from wanderlust.cli.main import main
from wanderlust.cli.output import print_note
from wanderlust.errors import one_line, printable, quoted
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.report import task_table
from wanderlust.runner.progress import Progress
from wanderlust.runner.terminal import Console
from wanderlust.store.reader import RunReader
from wanderlust.store.run import load_run
from wanderlust.store.store import RunStore
from wanderlust.studio.rollouts import rollout_record
from wanderlust.types import Group, Rollout, Score, Status, Task, ToolCall, Trajectory, Turn, assistant, user
from wanderlust.types import tool_message as tool_result

ODD = (
    *(":heart:", ":smile:", "[red]x[/red]", "[/]", "[bold", "<b>&amp;</b>", "**x**", "$x_1$", "{{ x }}", "%s", "\\n"),
    *("\x1b[31m", "\x1b[8m", "\x1b]0;title\x07", "\x1b[2J", "\x00", "\r", "\n", "\n\n", "\t", "   ", " ", "\u00a0"),
    *(
        "\u202e",
        "\u200b",
        "\u2028",
        "\ud83d",
        "e\u0301",
        "\u00e9",
        "\U0001f600",
        "\u6f22\u5b57",
        "\U000e0041",
        "\ufffc",
    ),
)
LONG = "a" + " " * 5_000 + "b" * 1_000_000 + "\n" + " " * 5_000 + "end"
"""A line of a megabyte with blanks that a cut may hide."""
TEXTS_PER_ROLLOUT, ROLLOUTS = 10, 1_000


def texts(count: int) -> Iterator[str]:
    """Texts of odd pieces and of any characters, with a mark that makes each the only one."""
    rng = random.Random(0)
    for number in range(count):
        pieces = [
            rng.choice(ODD) if rng.random() < 0.7 else chr(rng.randrange(0x11000)) for _ in range(rng.randrange(9))
        ]
        yield "".join([*pieces[:4], f"#{number}#", *pieces[4:]])


def stored(text: str) -> str:
    """The text as a store keeps it: lone surrogates, which no encoding has, as their escapes."""
    return text.encode(errors="backslashreplace").decode()


def made(written: list[str], *, sample: int, failed: bool = False, anew: bool = False) -> Rollout:
    """A rollout with these texts wherever texts can be."""
    task, asked, thought, said, name, argument, given, answer, state, note = written
    call = ToolCall(id="1", name=name, arguments=json.dumps({"x": argument}, ensure_ascii=False) + " ")
    thinking = assistant(said, call)
    object.__setattr__(thinking, "reasoning", thought)
    turns = [
        Turn(observation=(user(asked),), action=thinking),
        Turn(observation=(tool_result(given, call),), action=assistant(f"{sample} {answer}")),
    ]
    if anew:
        turns.append(Turn(observation=(user(f"anew {asked}"),), action=assistant("done"), resets_context=True))
    score = None if failed else Score(reward=float(sample), parts={"right": float(sample)}, notes={"right": note})
    return Rollout(
        task=Task(id=task, answer=answer),
        seed=0,
        sample_index=sample,
        status=Status.ERROR if failed else Status.DONE,
        stop_reason="EnvironmentFailure" if failed else "done",
        error=note if failed else None,
        trajectories=[Trajectory(turns=turns, score=score)],
        state={"said": state},
    )


@pytest.fixture(scope="module")
def written() -> list[list[str]]:
    """The texts of each rollout; of the last one all are long."""
    drawn = list(texts(TEXTS_PER_ROLLOUT * ROLLOUTS))
    rows = [drawn[at : at + TEXTS_PER_ROLLOUT] for at in range(0, len(drawn), TEXTS_PER_ROLLOUT)]
    return [*rows, [f"{number} {LONG}" for number in range(TEXTS_PER_ROLLOUT)]]


@pytest.fixture(scope="module")
def run(written: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exits") / "run"
    folder.mkdir()
    groups = []
    for number, row in enumerate(written):
        rollouts = [made(row, sample=sample, anew=bool(number % 2)) for sample in range(2)]
        groups.append(Group(task=rollouts[0].task, rollouts=rollouts, index=number))
    failed = made(written[0], sample=2, failed=True)
    groups.append(Group(task=failed.task, rollouts=[failed], index=len(groups)))
    with RunStore.create(folder / "rollouts.db") as store:
        store.add(groups, stage="eval", step=0, env="toy")
    return folder


def strings(value: Any) -> Iterator[str]:
    """All strings in JSON data, the names of fields among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from (name, *strings(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def called(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
    return int(str(end.value.code))


def exported(run: Path, to: str) -> list[Any]:
    target = run.parent / f"out-{to}"
    assert called("export", run, "--to", to, "--out", target) == 0
    if to == "atif":
        return [json.loads(file.read_text()) for file in sorted(target.iterdir())]
    if to == "parquet":
        rows = pytest.importorskip("pyarrow.parquet").read_table(target).to_pylist()
        return [{**row, "record": json.loads(row["record"])} for row in rows]
    return [json.loads(line) for line in target.read_text().splitlines()]


# What a format has no place for: of a rollout, the texts at these places.
ABSENT = {"jsonl": (), "parquet": (), "atif": (8,), "sft": (8, 9), "dpo": (8, 9)}


@pytest.mark.parametrize("to", ABSENT)
def test_exports_have_every_text_as_it_is(run: Path, written: list[list[str]], to: str) -> None:
    found = set(strings(exported(run, to)))
    for number, row in enumerate(written):
        if to == "dpo" and number % 2:
            continue  # the last of its conversations is the same in both
        expected = [stored(text) for place, text in enumerate(row) if place not in (5, 7, *ABSENT[to])]
        expected += [f"{sample} {stored(row[7])}" for sample in range(2)]
        expected.append(stored(json.dumps({"x": row[5]}, ensure_ascii=False) + " "))
        expected += [f"anew {stored(row[1])}"] * (number % 2)
        assert [text[:200] for text in expected if text not in found] == []


def test_a_run_in_python_has_every_text_as_it_is(run: Path, written: list[list[str]]) -> None:
    with load_run(run) as opened:
        again = {rollout.task.id: rollout for rollout in opened.rollouts}
        assert all(
            again[stored(row[0])].trajectory.turns[0].action.reasoning == stored(row[2])
            and again[stored(row[0])].state["said"] == stored(row[8])
            for row in written
        )


def test_show_prints_every_message_as_it_is(
    run: Path, written: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in [*range(1, 40, 2), 2 * len(written) - 1]:
        assert called("show", run, number) == 0
        output = capsys.readouterr().out
        row = [stored(text) for text in written[(number - 1) // 2]]
        for text in (row[1], row[2], row[3], row[6], f"0 {row[7]}"):
            assert f"] {printable(text)}\n" in output
        assert f"Rollout {number}: task {one_line(row[0])}, sample 0" in output
        assert f" calls {one_line(row[4])}(" in output
        assert "\x1b" not in output
    assert called("show", run, 2 * len(written) + 1) == 0
    assert f"Error: {one_line(stored(written[0][9]), 2000)}\n" in capsys.readouterr().out


def whole(output: str) -> str:
    """What a table shows, wherever its cells were broken."""
    return re.sub(r"[\s\u2500-\u257f]", "", output)


def test_tables_have_names_and_failures_as_they_are(
    run: Path, written: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("show", run, "--limit", "60") == 0
    shown = whole(capsys.readouterr().out)
    with RunReader(run / "rollouts.db") as reader:
        first = reader.rollouts(order="reward", limit=60)
    assert [row.task for row in first if whole(one_line(row.task, 40)) not in shown] == []
    for row in written[:200]:
        accumulator = ReportAccumulator()
        accumulator.add([Group(task=Task(id=row[0]), rollouts=[made(row, sample=0), made(row, sample=1, failed=True)])])
        assert whole(one_line(row[0])) in whole(task_text(accumulator))
        assert accumulator.failures["EnvironmentFailure"][2] == row[9]


def task_text(accumulator: ReportAccumulator) -> str:
    console = Console(width=10_000, file=io.StringIO())
    with console.capture() as capture:
        console.print(task_table(accumulator.rows()))
    return capture.get()


def test_the_page_has_every_text_or_says_how_long_it_is(run: Path, written: list[list[str]]) -> None:
    with RunReader(run / "rollouts.db") as reader:
        for number in [*range(1, 400, 2), 2 * len(written) - 1]:
            record = rollout_record(reader, number, {})
            row = [stored(text) for text in written[(number - 1) // 2]]
            asked = record["trajectories"][0]["turns"][0]["observation"][0]
            action = record["trajectories"][0]["turns"][0]["action"]
            for text, shown, cut in (
                (row[1], asked["content"], asked.get("cut")),
                (row[2], action["reasoning"], action.get("reasoning_cut")),
                (row[3], action["content"], action.get("cut")),
            ):
                assert shown == text if cut is None else (text.startswith(shown) and cut == len(text) > len(shown))
            arguments = stored(json.dumps({"x": written[(number - 1) // 2][5]}, ensure_ascii=False) + " ")
            shown = action["tool_calls"][0]["arguments"]
            assert shown == arguments or (shown.endswith("…") and arguments.startswith(shown[:-1]))
            state = record["state"]["said"]
            assert state in (row[8], {"cut": len(json.dumps(row[8], ensure_ascii=False).encode())})
            assert record["row"]["task"] == row[0]


def unescaped(line: str) -> str:
    return line.replace("\\n", "\n").replace("\\t", "\t")


def test_lines_of_logs_lose_nothing_unmarked(
    written: list[list[str]], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for text in [*(text for row in written[:200] for text in row), LONG]:
        line = one_line(text, 300)
        assert "\n" not in line
        assert line == printable(text).replace("\n", "\\n").replace("\t", "\\t") or line[-1] == "…"
        assert len(quoted(text)) >= len(text) or quoted(text).endswith("…")
        stream = io.StringIO()
        Progress(Console(file=stream, width=100)).log_line(text)
        assert stream.getvalue() == f"wander: {one_line(text, 500)}\n"
        print_note(text)
        assert capsys.readouterr().err == f"wander: {one_line(text.strip(), 10_000)}\n"


# `x[:40]!r` in a text: a cut that nobody sees.
UNMARKED = re.compile(r"\{[^{}]*\[: ?[\w.]+\]!r\}|repr\([^()]*\[: ?[\w.]+\]\)|str\((error|failure)\)[^\n]*\[: ?\w+\]")


def test_no_message_cuts_a_text_without_a_mark() -> None:
    found = {
        f"{path.name}: {match[0]}"
        for folder in ("src", "packages", "environments")
        for path in python_files(folder)
        for match in UNMARKED.finditer(path.read_text())
        if "quoted" not in match[0] and path.name != "errors.py"
    }
    assert found == set()


@pytest.mark.parametrize("code", ['f"{name[:40]!r} is wrong"', "repr(text[:9])", "str(error).splitlines()[0][:200]"])
def test_such_a_cut_would_be_found(code: str) -> None:
    assert UNMARKED.search(code)


def test_a_stream_without_the_character_shows_its_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert called("runs", Path("no \u2764 folder")) == 2
    sys.stdout.write("\u2764")
    sys.stdout.flush()
    assert raw.getvalue() == b"\\u2764"


def test_html_shows_texts_and_no_markup(run: Path, written: list[list[str]]) -> None:
    with load_run(run) as opened:
        page = opened._repr_html_()
    assert "<b>&amp;</b>" not in page
    assert unescape(page).count("#") >= 1
