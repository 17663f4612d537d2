"""Evaluation by the batch APIs of OpenAI, Anthropic and Google, against a server that follows their references."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest

from project_files import ROOT
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies import batches, endpoint
from wanderlust.policies.resolve import PolicyOptions, resolve_judge_policy
from wanderlust.types import Task, user

SERVER = ROOT / "tests" / "servers" / "batches.py"
NAMES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "google": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}


@pytest.fixture
def provider(monkeypatch):
    """A function that gives a policy that asks in batches, and one that tells what the server was asked."""
    for module, name, value in (
        (batches, "GATHER_SECONDS", 0.1),
        (batches, "FIRST_POLL_SECONDS", 0.01),
        (endpoint, "FIRST_PAUSE_SECONDS", 0.01),
    ):
        monkeypatch.setattr(module, name, value)
    with subprocess.Popen([sys.executable, SERVER], stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        for name, (url_variable, key_variable) in NAMES.items():
            monkeypatch.setenv(url_variable, url + ("/v1" if name == "openai" else ""))
            monkeypatch.setenv(key_variable, "k")

        def policy(name):
            return resolve_judge_policy(f"{name}/m", PolicyOptions(batch=True, concurrency=64)).policy

        def log():
            with urllib.request.urlopen(f"{url}/log") as answer:
                return json.load(answer)

        yield policy, log
        process.kill()


class TwoTurns(Environment):
    """Says two things, and wants to hear them again."""

    def tasks(self, split="train"):
        return [Task(id=f"t{n}") for n in range(12)]

    async def run(self, episode):
        for word in ("one", "two"):
            said = await episode.agent.act(user(f"{word} {episode.task.id}"))
            episode.reward("heard", 0.5 * (said.content == f"heard {word} {episode.task.id}"))


@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_asks_in_few_batches(provider, name):
    policy, log = provider
    report = evaluate_sync(TwoTurns(), policy(name))
    assert (report.scored, report.failed) == (12, 0)
    asked = [one[name] for one in log() if name in one]
    assert sum(asked) == 24
    assert len(asked) <= 8


class Says(Environment):
    """Says the task's own text."""

    def tasks(self, split="train"):
        return [Task(id=word) for word in ("fine", "wrong", "late")]

    async def run(self, episode):
        await episode.agent.act(user(episode.task.id))
        episode.reward("answered", 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_refused_and_expired_requests_fail_alone(provider, name, tmp_path):
    policy, _ = provider
    groups = []
    report = evaluate_sync(Says(), policy(name), observers=[groups.extend])
    assert (report.scored, report.failed) == (1, 2)
    told = {group.task.id: group.rollouts[0] for group in groups}
    assert told["fine"].error is None
    assert (told["wrong"].refusal, "not allowed" in told["wrong"].error) == ("HTTP 400", True)
    assert told["late"].transient
    assert "expired" in told["late"].error
    assert all("\n" not in (rollout.error or "") for rollout in told.values())


def test_a_batch_that_fails_as_a_whole_is_every_requests_failure(provider):
    policy, _ = provider

    async def go():
        async with policy("openai") as asked:
            return await asyncio.gather(
                *(asked.complete([user(text)], key=text) for text in ("broken", "other")), return_exceptions=True
            )

    for error in asyncio.run(go()):
        if isinstance(error, Exception):
            assert "the batch broke off: the batch batch_" in str(error)
            assert "invalid_json_line" in str(error)


def test_a_batch_under_way_is_cancelled_with_the_run(provider, monkeypatch):
    monkeypatch.setattr(batches, "FIRST_POLL_SECONDS", 60.0)
    policy, log = provider

    def wait_for(name):
        while not any(name in one for one in log()):
            time.sleep(0.05)

    async def go(name):
        async with policy(name) as asked:
            asking = asyncio.create_task(asked.complete([user("x")], key="k"))
            await asyncio.to_thread(wait_for, name)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    for name in NAMES:
        asyncio.run(go(name))
    assert len([one for one in log() if "cancelled" in one]) == len(NAMES)


def test_a_large_batch_is_sent_in_parts(provider, monkeypatch):
    monkeypatch.setattr(batches.GeminiBatches, "max_bytes", 700)
    policy, log = provider
    report = evaluate_sync(TwoTurns(), policy("google"))
    assert (report.scored, report.failed) == (12, 0)
    assert len([one for one in log() if "google" in one]) > 4


def test_results_that_are_too_few_are_every_requests_failure(provider):
    policy, _ = provider

    async def go():
        async with policy("google") as asked:
            return await asyncio.gather(
                *(asked.complete([user(text)], key=text) for text in ("short", "other")), return_exceptions=True
            )

    assert all("1 results for 2 requests" in str(error) for error in asyncio.run(go()))


def test_what_has_no_batches_says_so():
    with pytest.raises(UsageError, match="leave --cache and --batch out"):
        resolve_judge_policy("smollm2", PolicyOptions(batch=True))
