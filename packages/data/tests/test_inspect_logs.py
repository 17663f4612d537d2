"""Logs of inspect_ai as evaluations. `recorded/inspect_sums.eval` was written by inspect_ai 0.3.285, whose own mean of
the scorer `match` over its samples is 1/3: four samples, two epochs, a tool, an error, a message limit."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest
import zstandard

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.store.store import RunStore
from wanderlust.types import Status
from wanderlust_data.inspect_logs import import_log, open_log

LOG = Path(__file__).with_name("recorded") / "inspect_sums.eval"


def unpacked(folder: Path) -> dict:
    """The same log as one JSON document, as inspect_ai writes with --log-format json."""
    with open_log(LOG) as (_, samples):
        body = {"samples": list(samples)}
    with zipfile.ZipFile(LOG) as archive, LOG.open("rb") as raw:
        info = archive.getinfo("header.json")
        raw.seek(info.header_offset + 26)
        raw.seek(sum(struct.unpack("<HH", raw.read(4))), 1)
        body |= json.loads(
            zstandard.ZstdDecompressor().decompress(raw.read(info.compress_size), max_output_size=info.file_size)
        )
    return body


def test_samples_become_rollouts_with_scores_turns_and_usage(tmp_path):
    report = import_log(LOG, tmp_path / "run")
    assert report.rewards["agent"].value == pytest.approx(1 / 3)
    assert (report.played, report.scored) == (8, 6)
    with RunStore.read(tmp_path / "run/rollouts.db") as reader:
        groups = {group.task.id: group for group in reader.iter_groups("eval", 0)}
    assert {name: len(group.rollouts) for name, group in groups.items()} == {"one": 2, "2": 2, "bad": 2, "long": 2}
    first = groups["one"].rollouts[0]
    assert (first.sample_index, first.task.answer, first.task.info) == (0, "3", {"level": 1})
    looked, answered = first.trajectory.turns
    assert [m.role for m in looked.observation] == ["system", "user"]
    assert (looked.action.reasoning, looked.action.content) == ("think", "Let me add.")
    assert [(call.name, json.loads(call.arguments)) for call in looked.action.tool_calls] == [("add", {"x": 1, "y": 2})]
    assert [(m.role, m.content, m.tool_call_id) for m in answered.observation] == [("tool", "3", "c1")]
    assert looked.usage == {"prompt_tokens": 14, "completion_tokens": 5, "cached_tokens": 4}
    assert first.trajectory.score.parts == {"match": 1.0, "short/short": 1.0, "short/words": 1.0}
    assert first.trajectory.score.notes["short"] == "it is short"
    assert groups["2"].rollouts[1].task.answer == ["4", "four"]
    bad, long = groups["bad"].rollouts[0], groups["long"].rollouts[0]
    assert (bad.status, bad.error) == (Status.ERROR, "RuntimeError('the model broke')")
    assert (long.status, long.stop_reason, len(long.trajectory.turns)) == (Status.TRUNCATED, "message_limit", 3)


def test_another_scorer_may_be_the_reward_and_a_json_log_is_the_same(tmp_path):
    assert import_log(LOG, tmp_path / "a", scorer="short/short").rewards["agent"].value == pytest.approx(2 / 3)
    (tmp_path / "log.json").write_text(json.dumps(unpacked(tmp_path)))
    again = import_log(tmp_path / "log.json", tmp_path / "b")
    assert again.rewards["agent"].value == pytest.approx(1 / 3)
    with pytest.raises(UsageError, match="no number of a scorer 'other'; it has: match, short/short, short/words"):
        import_log(LOG, tmp_path / "c", scorer="other")
    with pytest.raises(UsageError, match="exists already"):
        import_log(LOG, tmp_path / "a")


def test_an_imported_run_is_shown_compared_and_exported(tmp_path, capsys):
    for name, scorer in (("a", "match"), ("b", "short/short")):
        with pytest.raises(SystemExit) as end:
            main(["import", str(LOG), "--out", str(tmp_path / name), "--scorer", scorer])
        assert end.value.code == 0
    out, err = capsys.readouterr()
    assert "message_limit" in out
    assert "2 samples have no score: InspectError: RuntimeError('the model broke')" in err
    commands = (
        ["show", str(tmp_path / "a"), "1"],
        ["compare", str(tmp_path / "a"), str(tmp_path / "b")],
        ["export", str(tmp_path / "a"), "--to", "sft", "--out", str(tmp_path / "rows.jsonl")],
    )
    for words in commands:
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code in (0, None), words
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 6


def test_a_missing_log_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"none\.eval cannot be read: No such file or directory$"):
        import_log(tmp_path / "none.eval", tmp_path / "run")


@pytest.mark.parametrize("kind", ["text", "empty archive", "damaged", "other json"])
def test_what_is_no_log_is_one_line(kind, tmp_path):
    path = tmp_path / ("log.json" if kind == "other json" else "log.eval")
    if kind == "text":
        path.write_text("no log")
    elif kind == "empty archive":
        zipfile.ZipFile(path, "w").close()
    elif kind == "damaged":
        shutil.copy(LOG, path)
        body = bytearray(path.read_bytes())
        body[200:5000] = bytes(4800)
        path.write_bytes(bytes(body))
    else:
        path.write_text('{"a": 1}')
    with pytest.raises(UsageError, match=r"log\.") as error:
        import_log(path, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "report.json").exists()
