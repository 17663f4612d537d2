"""The chat templates that models really come with, where a package brings them: TRL ships many."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_tool_templates import LOOK, asked_and_answered, calls_of

from wanderlust.types import tool_message


def real_templates() -> Iterator[Path]:
    found = find_spec("trl")
    for place in found.submodule_search_locations or () if found else ():
        yield from sorted(Path(place).glob("chat_templates/*.jinja"))


THOUGHT = "<think>\nso\n</think>\n\n"
REAL = {
    **dict.fromkeys(["qwen2_5", "qwen3", "qwen3_instruct_2507"], "hermes"),
    **dict.fromkeys(["qwen3_5_nothink", "qwen3_6"], "tagged"),
    **dict.fromkeys(["llama3_1", "llama3_2"], "llama"),
    **dict.fromkeys(["lfm2", "lfm2_v2", "lfm2_2_5_v2"], "lfm"),
}


@pytest.mark.skipif(
    not list(real_templates()), reason="TRL, which ships real chat templates, is not installed: make peers"
)
@pytest.mark.parametrize("name", REAL)
def test_real_templates(name):
    text = next(path for path in real_templates() if path.stem == name).read_text()
    content = THOUGHT if name in ("qwen3", "qwen3_6") else ""
    renderer, known, ids = asked_and_answered(text, content, 1)
    assert renderer.tool_call_format is not None
    assert renderer.tool_call_format.name == REAL[name]
    said = renderer.parse_answer(ids, [LOOK], turn=2)
    assert calls_of(said) == [("look", {"n": 0})]
    results = [tool_message("it is 0", said.tool_calls[0])]
    more = renderer.extend([*known[:2], said], results, closed=True)
    assert more is not None
    assert (*renderer.start(known[:2]), *ids, *more) == renderer.start([*known[:2], said, *results])
