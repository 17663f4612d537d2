"""Any environment inside TRL's GRPOTrainer, as its `environment_factory`, dataset and reward functions.

TRL is not imported. Its contract (1.16) is one of shapes: a factory of objects whose public methods are tools for the
model, with `reset(**row)` and perhaps `get_reward()`, in rows with a `prompt`. There an environment answers through
results of tools alone, so that one without tools gets a single tool, `act`, that takes the model's next move.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar

from wanderlust.environment import Environment, Limits
from wanderlust.errors import Failure, UsageError
from wanderlust.runner.stepper import DrivenSeat
from wanderlust.types import Message, Policy, Tool, ToolCall, assistant

T = TypeVar("T")
EPISODE_OVER = "The episode is over."
PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "null": type(None),
}


class TrlEnvironments:
    """`with trl_environments(env) as factory: GRPOTrainer(environment_factory=factory, ...)`

    Each call makes one more environment for TRL; all of them share one event loop in a thread, which ends with the
    block. Every group of rows with one task and seed plays the same episode, as the rollouts of a group do here.
    """

    def __init__(self, env: Environment, **options: Any):
        """`options` are those of `DrivenSeat`."""
        self._made = partial(DrivenSeat, env, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wanderlust-trl", daemon=True)
        self._thread.start()
        self._driven: list[DrivenSeat] = []
        probe = self._made()
        try:
            self._wait(probe.reset())
            tools = probe.tools  # of the first turn of the first task
        finally:
            self._wait(probe.close())
        methods = {tool.name: _method(tool) for tool in tools}
        kind = _TrlEpisode if tools else _TrlTextEpisode
        self._place = type(type(env).__name__, (kind,), methods)
        self.reward_funcs: list[Callable[..., list[float | None]]] = [self.rewards] if tools else []
        """For TRL's `reward_funcs`; empty where places have a `get_reward` that says it all, having no tools."""

    def __call__(self) -> Any:
        """An environment for one rollout after the other."""
        driven = self._made()
        self._driven.append(driven)
        return self._place(driven, self._wait)

    def rows(self, tasks: int, *, seeds: Sequence[int] = (0,)) -> list[dict[str, Any]]:
        """A dataset: the first `tasks` tasks with each of the seeds, and the first observation as the prompt."""
        probe, rows = self._made(), list[dict[str, Any]]()
        try:
            for index, seed in ((index, seed) for seed in seeds for index in range(tasks)):
                step = self._wait(probe.reset(index, seed))
                prompt = [{"role": m.role, "content": m.content} for m in step.observation]
                rows.append({"prompt": prompt, "index": index, "seed": seed})
            return rows
        finally:
            self._wait(probe.close())

    def rewards(
        self, completions: Sequence[Sequence[Mapping[str, Any]]], environments: Sequence[Any], **row: Any
    ) -> list[float | None]:
        """The score of each rollout, its last message included; None where the environment failed."""
        return [place._final_reward(completion) for place, completion in zip(environments, completions, strict=True)]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Abandon all episodes, and end the thread; nothing can be played afterwards."""
        if self._loop.is_closed():
            return
        for driven in self._driven:
            self._wait(driven.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def trl_environments(
    env: Environment,
    *,
    split: str = "train",
    limits: Limits | None = None,
    seat: str = "",
    others: Mapping[str, Policy] | None = None,
) -> TrlEnvironments:
    """A factory for TRL's `environment_factory`; `seat` is the trained one, `others` play the other seats."""
    return TrlEnvironments(env, split=split, limits=limits, seat=seat, others=others)


class _TrlEpisode:
    """One rollout at a time for TRL; the tools are methods of the subclass made for an environment."""

    def __init__(self, driven: DrivenSeat, wait: Callable[[Coroutine[Any, Any, Any]], Any]):
        self._driven, self._wait, self._failed = driven, wait, False

    def reset(self, index: int = 0, seed: int = 0, **row: Any) -> None:
        """Begin the row's episode; what it shows first is the row's prompt already."""
        try:
            self._wait(self._driven.reset(index, seed))
        except Failure:
            self._failed = True
        else:
            self._failed = False

    def _take(self, action: Message) -> str:
        """One turn; its answer as text. A failure is raised, for TRL to tell the model, and leaves no reward."""
        try:
            step = self._wait(self._driven.step(action))
        except Failure:
            self._failed = True
            raise
        content = "\n".join(m.content for m in step.observation)
        return content if not step.done else f"{content}\n{EPISODE_OVER}".strip()

    def _final_reward(self, completion: Sequence[Mapping[str, Any]]) -> float | None:
        """The score after the model's last message, where it had one."""
        last = completion[-1] if completion else {}
        try:
            if not self._driven.done and last.get("role") == "assistant" and not last.get("tool_calls"):
                self._wait(self._driven.step(assistant(str(last.get("content") or ""))))
            reward: float = self._wait(self._driven.finish())
        except Failure:
            self._failed = True
        return None if self._failed else reward


class _TrlTextEpisode(_TrlEpisode):
    """Takes the model's moves through a tool."""

    def act(self, text: str) -> str:
        """Make your next move, or give your answer.

        Args:
            text: What you say, in the form that you were asked for.
        """
        return self._take(assistant(text))

    def get_reward(self) -> float | None:
        """The score of the rollout so far."""
        return self._final_reward(())


def _method(tool: Tool) -> Callable[..., str]:
    """The tool as a method with the signature and the docstring that its schema says, from which TRL reads it again."""

    def call(self: _TrlEpisode, **arguments: Any) -> str:
        number = self._driven.turns
        made = ToolCall(id=f"call-{number}", name=tool.name, arguments=json.dumps(arguments))
        return self._take(assistant("", made))

    properties: dict[str, Any] = tool.schema.get("properties", {})
    required = tool.schema.get("required", [])
    types = {name: _type(schema) for name, schema in properties.items()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in required else properties[name].get("default"),
            annotation=types[name],
        )
        for name in sorted(properties, key=lambda name: name not in required)
    ]
    lines = [f"    {name}: {_line(schema.get('description') or name)}" for name, schema in properties.items()]
    self_first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = "\n".join([_line(tool.description), *(["", "Args:", *lines] if lines else [])])
    call.__annotations__ = {**types, "return": str}
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [self_first, *parameters], return_annotation=str
    )
    if not tool.name.isidentifier() or tool.name.startswith("_") or tool.name in ("reset", "get_reward"):
        raise UsageError(f"the tool {tool.name!r} cannot be a method: give it another name")
    return call


def _line(text: str) -> str:
    return " ".join(text.split())


def _type(schema: Mapping[str, Any]) -> Any:
    """The Python type that a JSON schema stands for."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    kind = schema.get("type")
    if kind == "array":
        return list[_type(schema.get("items", {}))]  # type: ignore[misc]
    return PYTHON_TYPES.get(kind, Any) if isinstance(kind, str) else Any
