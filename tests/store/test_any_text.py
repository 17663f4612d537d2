"""Whatever a model, a tool or a world writes, the episode ends, is scored, kept and read again."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.environment import Environment, Limits
from wanderlust.openai_types import parse_chat_completion
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.store.store import RunStore
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Group, Rollout, Status, Task, ToolCall, assistant, user

ANY = st.text(st.characters())  # lone surrogates, controls and all
CUT = "half of it: \ud83d"


class Echo(Environment):
    """Shows any text, hears any text, and remembers both."""

    async def run(self, episode):
        said = await episode.agent.act(user(episode.task.info["shown"]))
        episode.state.update(said=said.content, by={said.content: [said.content]})
        episode.reward("spoke", 1.0)


class Hands(ToolEnvironment):
    """One tool that gives back what the task says."""

    limits = Limits(max_turns=3)

    def __init__(self, given):
        async def look(what: str) -> str:
            return given

        self.tools = (look,)


def play(env, policy, info=None):
    return asyncio.run(rollout(env, Task(id="t", prompt=(user("?"),), info=info or {}), policy))


def kept(played: Rollout) -> Rollout:
    with tempfile.TemporaryDirectory() as folder, RunStore.create(Path(folder) / "run.db") as store:
        store.add([Group(task=played.task, rollouts=[played])], stage="eval", step=0)
        ((again,),) = [group.rollouts for group in store.groups(stage="eval", step=0)]
    return again


@settings(max_examples=60)
@given(shown=ANY, said=ANY)
def test_any_text_shown_and_said(shown, said):
    played = play(Echo(), Scripted([said]), {"shown": shown})
    assert (played.status, played.trajectory.score.reward) == (Status.DONE, 1.0)
    written = said.encode(errors="backslashreplace").decode()
    again = kept(played)
    assert again.trajectory.turns[0].action.content == written
    assert again.state == {"said": written, "by": {written: [written]}}


@settings(max_examples=60)
@given(name=st.sampled_from(["look", ""]) | ANY, arguments=ANY, given_back=ANY)
def test_any_call_and_any_result(name, arguments, given_back):
    turns = [assistant("", ToolCall(id="1", name=name, arguments=arguments)), assistant("done")]
    played = play(Hands(given_back), Scripted(turns))
    assert played.status is Status.DONE, played.error
    assert kept(played).trajectory.turns[-1].action.content == "done"


@settings(max_examples=60)
@given(given_back=ANY)
def test_any_result_of_a_right_call(given_back):
    call = ToolCall(id="1", name="look", arguments='{"what": "x"}')
    played = play(Hands(given_back), Scripted([assistant("", call), assistant("done")]))
    answer = played.trajectory.turns[1].observation[-1].content
    assert answer == given_back.encode(errors="backslashreplace").decode()
    assert kept(played).status is Status.DONE


def test_an_answer_cut_within_a_character_is_an_answer():
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": CUT}}]}).encode()
    assert parse_chat_completion(body).message.content == "half of it: \ufffd"
