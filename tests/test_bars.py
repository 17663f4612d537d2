"""A bar knows whether it is met, whichever way is good."""

from __future__ import annotations

import json

import pytest
from benchmarks.__main__ import main, subjects
from benchmarks.bar import Bar


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
