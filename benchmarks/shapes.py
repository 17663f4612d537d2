"""Every shape of environment with a task that a small model learns in a minute, each with a teacher to imitate.

What the model must find out stands in no prompt where there are tools: without a call the reward is that of chance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from wanderlust.environment import (
    Environment,
    EnvironmentReply,
    Episode,
    MultiTurnEnvironment,
    SingleTurnEnvironment,
    Step,
    StepEnvironment,
)
from wanderlust.openai_types import tool_to_wire
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import play_groups, run_blocking
from wanderlust.tools.function import Toolset, toolset
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Completion, Message, Rollout, Task, Tool, ToolCall, Trajectory, assistant, user
from wanderlust.worlds import Mail, Scenario, System, UserInterface, WorldEnvironment, capture, log_of
from wanderlust_worlds.engine.world import World

CUPS = 3
TASKS = 60
"""Of each split."""


def call(name: str, **arguments: Any) -> Message:
    return assistant("", ToolCall(id="teacher", name=name, arguments=json.dumps(arguments)))


def results(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


def teacher(say: Callable[[Sequence[Message]], Message | str]) -> Mapping[str, Callable[[], Scripted]]:
    return {"teacher": lambda: Scripted(lambda messages, _: say(messages))}


def questions(ask: Callable[[int, Random], tuple[str, str]]) -> dict[str, list[Task]]:
    """Tasks of two splits: `ask` gives a prompt and its answer."""
    splits: dict[str, list[Task]] = {}
    for split in ("train", "eval"):
        asked = [ask(n, Random(f"{split}/{n}")) for n in range(TASKS)]
        splits[split] = [
            Task(id=f"{split}-{n}", prompt=(user(text),), answer=answer) for n, (text, answer) in enumerate(asked)
        ]
    return splits


def said_right(rollout: Rollout, trajectory: Trajectory) -> float:
    """Whether the last answer is the task's."""
    return float(bool(trajectory.turns) and trajectory.turns[-1].action.content.strip() == rollout.task.answer)


def found_right(rollout: Rollout, trajectory: Trajectory) -> float:
    """Whether the last answer names what the environment has hidden."""
    return float(bool(trajectory.turns) and trajectory.turns[-1].action.content.strip() == rollout.state["hidden"])


class Single(SingleTurnEnvironment):
    """One question: the larger of two digits."""

    players = teacher(lambda messages: max(messages[-1].content.split()[-2:]))

    def __init__(self) -> None:
        super().__init__(questions(self.ask), rubric=Rubric(said_right))

    @staticmethod
    def ask(n: int, rng: Random) -> tuple[str, str]:
        a, b = rng.sample("123456", 2)
        return f"larger of {a} {b}", max(a, b)


class Multi(MultiTurnEnvironment):
    """Say two letters one after the other, the second only when asked for."""

    players = teacher(lambda messages: messages[-1].content.split()[-1])

    def __init__(self) -> None:
        super().__init__(questions(self.ask), rubric=Rubric(said_right))

    @staticmethod
    def ask(n: int, rng: Random) -> tuple[str, str]:
        a, b = rng.sample("abcdef", 2)
        return f"later {b} now {a}", b

    def respond(self, messages: Sequence[Message], episode: Episode) -> EnvironmentReply:
        if len(episode.agent.trajectory.turns) > 1:
            return None
        return f"now {episode.task.prompt[0].content.split()[1]}"


def price(item: str) -> str:
    """Look up a price.

    Args:
        item: What is sold.
    """
    return str(sum(map(ord, item)) % 7 + 1)


class PlainTool(ToolEnvironment):
    """A function is the tool: a price is looked up and said."""

    tools = (price,)
    items = ("tea", "rice", "salt", "milk", "bread", "soap")
    players = teacher(
        lambda messages: (
            ((found := results(messages)) and found[-1]) or call("price", item=messages[0].content.split()[-1])
        )
    )

    def __init__(self) -> None:
        super().__init__(questions(self.ask), rubric=Rubric(said_right, looked_up))

    @classmethod
    def ask(cls, n: int, rng: Random) -> tuple[str, str]:
        item = rng.choice(cls.items)
        return f"price of {item}", price(item)


def looked_up(rollout: Rollout, trajectory: Trajectory) -> float:
    """Whether a call was made, and was right."""
    return float(rollout.state["tool_calls"].get("done", 0) == 1)


def hide(episode: Episode) -> int:
    """Where the ball is, by the episode's own draw."""
    place = episode.rng("ball").randrange(CUPS)
    episode.state["hidden"] = f"cup {place}"
    return place


@toolset
async def cups(episode: Episode) -> Any:
    """Cups that one may look under."""
    ball = hide(episode)

    def peek(cup: int) -> str:
        """Look under a cup.

        Args:
            cup: 0, 1 or 2.
        """
        return "a ball" if cup == ball else "nothing"

    yield [peek]


def search(messages: Sequence[Message]) -> Message | str:
    """Look under one cup after the other; say where the ball is."""
    found = results(messages)
    if found and found[-1] == "a ball":
        return f"cup {len(found) - 1}"
    return f"cup {CUPS - 1}" if len(found) == CUPS - 1 else call("peek", cup=len(found))


class Cups(ToolEnvironment):
    """A toolset that is made for each episode: find the ball in at most two looks."""

    tools: Sequence[Toolset] = (cups,)
    players = teacher(search)

    def __init__(self) -> None:
        super().__init__(questions(lambda n, rng: ("where is the ball", "")), rubric=Rubric(found_right))


SERVER = '''
import asyncio
from wanderlust.tools.mcp_server import serve_stdio

def weight(item: str) -> str:
    """Weigh something."""
    return str(sum(map(ord, item)) % 7 + 1)

asyncio.run(serve_stdio(weight))
'''


class Served(ToolEnvironment):
    """The tool is an MCP server's, a process of its own."""

    tools = (McpServer(sys.executable, "-c", SERVER),)
    players = teacher(
        lambda messages: (
            ((found := results(messages)) and found[-1]) or call("weight", item=messages[0].content.split()[-1])
        )
    )

    def __init__(self) -> None:
        super().__init__(questions(self.ask), rubric=Rubric(said_right, looked_up))

    @staticmethod
    def ask(n: int, rng: Random) -> tuple[str, str]:
        item = rng.choice(PlainTool.items)
        return f"weight of {item}", price(item)


@toolset
async def shell(episode: Episode) -> Any:
    """A sandbox with a file in it."""
    ball = hide(episode)
    sandbox = await open_sandbox()
    try:
        await sandbox.write("ball", f"cup {ball}\n".encode())

        async def run(command: str) -> str:
            """Run a command.

            Args:
                command: Words of the shell.
            """
            return (await sandbox.run(["sh", "-c", command])).stdout.decode(errors="replace").strip() or "nothing"

        yield [run]
    finally:
        await sandbox.close()


class Shell(ToolEnvironment):
    """Commands in a sandbox: what a file says is read and said."""

    tools = (shell,)
    players = teacher(lambda messages: ((found := results(messages)) and found[-1]) or call("run", command="cat ball"))

    def __init__(self) -> None:
        super().__init__(questions(lambda n, rng: ("what is in the file ball", "")), rubric=Rubric(found_right))


class Seats(Environment):
    """Two seats with tools of their own: one finds the ball, and the other hears of it and says it."""

    seats = ("finder", "speaker")
    rubric = Rubric(found_right)
    players = teacher(
        lambda messages: (
            search(messages) if messages[0].content.startswith("where") else messages[0].content.split(": ")[-1]
        )
    )

    def tasks(self, split: str = "train") -> list[Task]:
        return questions(lambda n, rng: ("", ""))[split]

    async def run(self, episode: Episode) -> None:
        async with cups.open(episode) as tools:
            peek, finder = tools[0], episode.agents["finder"]
            new = [user("where is the ball")]
            for _ in range(CUPS):
                answer = await finder.act(*new, tools=tools)
                if not answer.tool_calls:
                    break
                new = [await _answered(peek, one) for one in answer.tool_calls]
        await episode.agents["speaker"].act(user(f"say this: {answer.content}"))


async def _answered(tool: Tool, one: ToolCall) -> Message:
    try:
        text = await tool(**json.loads(one.arguments)) if one.name == tool.name else "there is no such tool"
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        text = f"error: {type(error).__name__}"
    return Message("tool", text, tool_call_id=one.id)


WORDS = ("lunch", "tea", "chess", "music", "garden")


def _scenario(split: str, n: int) -> Scenario:
    word = Random(f"{split}/{n}").choice(WORDS)
    mail, phone, system = Mail("Emails", user_email="kim@example.org"), UserInterface(), System()
    with capture(mail, phone, system) as story:
        request = story.user(phone).send_message_to_agent(f"ask ana about {word}")
        story.agent(mail, after=request).send_email(recipients=["ana@a.org"], subject=word)
    return Scenario(
        id=f"{split}-{n}", apps=(mail, phone, system), events=story.events, duration=600, info={"word": word}
    )


def was_sent(rollout: Rollout, trajectory: Trajectory) -> float:
    """Whether one mail was sent, with the word that was asked for."""
    sent = [one.args for one in log_of(rollout) if one.action == "send_email" and one.by == "agent" and not one.error]
    return float(len(sent) == 1 and sent[0]["subject"] == rollout.task.info["word"])


class Worlds(WorldEnvironment):
    """A simulated world whose agent sends a mail; of the apps' actions only that one is offered."""

    players = teacher(
        lambda messages: (
            "done"
            if results(messages)
            else call("Emails__send_email", recipients=["ana@a.org"], subject=messages[-1].content.split()[-1])
        )
    )

    def __init__(self) -> None:
        scenarios = {split: [_scenario(split, n) for n in range(TASKS)] for split in ("train", "eval")}
        super().__init__(scenarios, rubric=Rubric(was_sent))

    def tools(self, world: World, episode: Episode) -> list[Tool]:
        return [tool for tool in super().tools(world, episode) if tool.name == "Emails__send_email"]


class Countdown(StepEnvironment):
    """Reset and step: say the number that comes before the one that is shown, twice."""

    players = teacher(lambda messages: str(int(messages[-1].content.split()[-1]) - 1))

    def tasks(self, split: str = "train") -> list[Task]:
        return questions(lambda n, rng: ("", str(rng.randint(3, 8))))[split]

    def start(self, task: Task, rng: Random) -> CountdownGame:
        return CountdownGame(int(task.answer))


class CountdownGame:
    def __init__(self, number: int):
        self.number, self.last = number, number - 2

    def reset(self) -> Step:
        return Step((user(f"before {self.number}"),))

    def step(self, action: Message) -> Step:
        right = action.content.strip() == str(self.number - 1)
        self.number -= 1
        over = not right or self.number == self.last
        return Step((user(f"before {self.number}"),), reward=0.5 * right, done=over)


SHAPES: Mapping[str, type[Environment]] = {
    "single": Single,
    "multi-turn": Multi,
    "tool": PlainTool,
    "toolset": Cups,
    "mcp": Served,
    "sandbox": Shell,
    "seats": Seats,
    "worlds": Worlds,
    "step": Countdown,
}


class ClumsyCups(Cups):
    """The same, with a teacher that forgets half of what it saw: what it earns can be passed by far."""

    players: ClassVar = {"teacher": lambda: Scripted(_clumsy)}


def _clumsy(messages: Sequence[Message], rng: Random) -> Message | str:
    step = search(messages)
    return f"cup {rng.randrange(CUPS)}" if isinstance(step, str) and rng.random() < 0.6 else step


ERRS = 0.3
"""Share of its steps in which a teacher errs."""


def with_erring_teacher(env: Environment) -> Environment:
    """The same environment, whose teacher says something useless now and then."""
    good = env.players["teacher"]

    class Erring:
        def __init__(self) -> None:
            self.policy = good()

        async def complete(
            self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = ""
        ) -> Completion:
            done = await self.policy.complete(messages, tools, key=key)
            errs = Random(f"{key}/{len(messages)}").random() < ERRS
            return replace(done, message=assistant("nothing")) if errs else done

    env.players = {"teacher": Erring}
    return env


def hermes_checkpoint(env: Environment, folder: Path) -> Path:
    """A small Llama with random weights whose template lists tools and writes calls as Hermes does."""
    groups = run_blocking(lambda: play_groups(env, list(env.tasks()), env.players["teacher"](), concurrency=16))
    turns = [turn for group in groups for one in group.rollouts[0].trajectories for turn in one.turns]
    texts = [message.content for turn in turns for message in (*turn.observation, turn.action)]
    texts += [json.dumps(tool_to_wire(tool)) for turn in turns for tool in turn.tools]
    calls = [call for turn in turns for call in turn.action.tool_calls]
    texts += [f'"name": "{call.name}", "arguments": {call.arguments}' for call in calls]
    tokenizer = fresh_tokenizer(texts, size=1024)
    tokenizer.chat_template = HERMES_TEMPLATE
    shape = ModelShape(width=64, layers=2, heads=4, inner=192, positions=1024, theta=100.0, spread=0.1)
    save_pretrained(folder, fresh_model(tokenizer, shape, seed=0), tokenizer)
    return folder


HERMES_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
