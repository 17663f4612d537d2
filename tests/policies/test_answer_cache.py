"""The cache of generations: answers from a folder for the same request of the same sample."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from wanderlust.cli.main import main
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.answer_cache import CACHE_FILE, AnswerCache, CachedPolicy
from wanderlust.policies.resolve import PolicyOptions, resolve_judge_policy
from wanderlust.types import AnswerOptions, Completion, Message, SupportsOptions, ToolCall, assistant, user


class Counting:
    """Says how often it was asked."""

    label, sampling = "counting", {"temperature": 1}

    def __init__(self):
        self.asked = 0

    async def complete(self, messages, tools=(), *, key=""):
        self.asked += 1
        call = ToolCall(id="c", name="look", arguments="{}", extra='{"a": 1}')
        message = Message("assistant", f"{self.asked} \ud7ff", (call,), reasoning="r", extra='{"b": 2}')
        return Completion(message=message, usage={"prompt_tokens": 3, "cached_tokens": 1})


def ask(policy, text="x", key="k", options=None):
    if options is not None:
        return asyncio.run(policy.complete_with_options(options, [user(text)], key=key))
    return asyncio.run(policy.complete([user(text)], key=key))


def test_the_same_request_of_the_same_sample_is_answered_from_the_folder(tmp_path):
    inner = Counting()
    policy = CachedPolicy(inner, AnswerCache(tmp_path))
    first = ask(policy)
    assert ask(policy) == first
    assert ask(CachedPolicy(Counting(), AnswerCache(tmp_path))) == first  # another process
    assert inner.asked == 1
    assert ask(policy, key="other sample") != first
    assert ask(policy, text="y") != first
    inner.sampling = {"temperature": 0}
    assert ask(policy) != first
    assert inner.asked == 4


def test_failures_and_half_characters_are_not_kept(tmp_path):
    class Failing(Counting):
        async def complete(self, messages, tools=(), *, key=""):
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("boom")
            return Completion(message=assistant("\ud800"))

    policy = CachedPolicy(Failing(), AnswerCache(tmp_path))
    with pytest.raises(RuntimeError):
        ask(policy)
    ask(policy)
    ask(policy)
    assert policy.policy.asked == 3


def test_options_are_part_of_the_request_and_the_policys_own(tmp_path):
    policy = CachedPolicy(Counting(), AnswerCache(tmp_path))
    assert isinstance(policy, SupportsOptions)
    assert policy.unsupported_option(AnswerOptions(stop=("x",))) == "stop"
    assert policy.unsupported_option(AnswerOptions()) == ""


def test_a_folder_that_cannot_be_used_is_named_in_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot use"):
        AnswerCache(tmp_path / "file")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / CACHE_FILE).write_text("no database" * 200)
    with pytest.raises(StoreError, match="cannot use"):
        AnswerCache(tmp_path / "broken")
    with pytest.raises(UsageError, match="leave --cache and --batch out"):
        resolve_judge_policy("smollm2", PolicyOptions(cache=tmp_path))


class Provider(BaseHTTPRequestHandler):
    """A model that says no."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        self.asked.append(self.headers["x-secret"])
        self.rfile.read(int(self.headers["Content-Length"]))
        body = {"choices": [{"message": {"content": "no"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        pass


def test_an_evaluation_asks_a_provider_once(tmp_path, monkeypatch, capsys):
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        command = ["eval", "legal-move", "--policy", "openai/m", "-n", "3", "--samples", "2", "--json"]
        command += ["--cache", str(tmp_path / "cache"), "--extra-headers", '{"x-secret": "s3cret"}']
        shown = []
        for out in ("one", "two"):
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*command, "--out", str(tmp_path / out)])
            shown.append(json.loads(capsys.readouterr().out)["tasks"])
        server.shutdown()
    assert shown[0] == shown[1]
    assert Provider.asked == ["s3cret"] * 6
    kept = b"".join(path.read_bytes() for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert b"s3cret" not in kept
