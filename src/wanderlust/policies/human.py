"""A person at the terminal.

Tool calls as a person types them: `App__action name=value name="two words"`, and `?` to look up what there is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from threading import Lock, Thread
from typing import Any

from wanderlust.errors import PolicyFailure, StopEpisode, UsageError, WanderlustError, boundary, one_line, printable
from wanderlust.types import Completion, Message, Tool, ToolCall, assistant

TYPED_CALL_HINT = (
    "Call a tool: NAME arg=value ..., or write a message. ? lists the tools, ? NAME explains one, ? WORD finds some."
)

_NAMED = re.compile(r"(\w+)=")


def parse_typed_call(line: str, tools: Sequence[Tool], *, number: int = 0) -> ToolCall | None:
    """The call that a line makes; None when its first word is no tool's name, nor one that was meant to be.

    Values are read as JSON where the tool wants something else than a text. Raises UsageError for arguments that
    cannot be read, for those that the tool has not, and for a name with `__` that no tool has.
    """
    tools_by_name = {tool.name: tool for tool in tools}
    name, _, rest = line.strip().partition(" ")
    if name not in tools_by_name:
        if "__" in name and tools_by_name:
            near = get_close_matches(name, tools_by_name, n=3, cutoff=0.4)
            raise UsageError(f"there is no tool {name!r}" + (f"; there is {', '.join(near)}" if near else ""))
        return None
    return ToolCall(id=f"typed-{number}", name=name, arguments=json.dumps(_arguments(rest, tools_by_name[name])))


def _arguments(text: str, tool: Tool) -> dict[str, Any]:
    wanted: Mapping[str, Any] = tool.schema.get("properties", {})
    arguments: dict[str, Any] = {}
    rest = text.strip()
    while rest:
        named = _NAMED.match(rest)
        if named is None or named[1] not in wanted:
            raise UsageError(f"{tool.name} takes {_describe_tool(tool)}; what is {one_line(rest.split()[0], 40)!r}?")
        arguments[named[1]], rest = _value(rest[named.end() :], wanted[named[1]])
        rest = rest.strip()
    return arguments


def _value(text: str, schema: Mapping[str, Any]) -> tuple[Any, str]:
    """The value that a text begins with, and the rest of the text."""
    kinds = {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))} - {None}
    if text[:1] in ("'", '"'):
        return _quoted(text)
    if text[:1] in ("[", "{") and kinds & {"array", "object"}:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{one_line(text, 40)!r} cannot be read as JSON: {one_line(str(error), 60)}") from error
        return value, text[end:]
    word, _, rest = text.partition(" ")
    if kinds <= {"string"} or (kinds <= {"string", "null"} and word != "null"):
        return word, rest
    try:
        return json.loads(word), rest
    except ValueError:
        return ([word] if "array" in kinds else word), rest


def _quoted(text: str) -> tuple[str, str]:
    end = text.find(text[0], 1)
    if end < 0:
        raise UsageError(f"the arguments cannot be read: no closing {text[0]} in {one_line(text, 40)}")
    return text[1:end], text[end + 1 :]


def _describe_tool(tool: Tool) -> str:
    required = set(tool.schema.get("required", ()))
    names = [name if name in required else f"[{name}]" for name in tool.schema.get("properties", {})]
    return ", ".join(names) or "nothing"


def describe_tools(line: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Lines that answer `?`, `? NAME` or `? WORD`."""
    sought = line.strip().lstrip("?").strip()
    exact = [tool for tool in tools if tool.name == sought]
    for tool in exact:
        yield f"{tool.name}: {tool.description}"
        for name, schema in tool.schema.get("properties", {}).items():
            kind = schema.get("type") or " or ".join(str(one.get("type")) for one in schema.get("anyOf", ()))
            need = "" if name in tool.schema.get("required", ()) else ", may be left out"
            yield f"  {name} ({kind}{need}): {schema.get('description', '')}"
    if not exact:
        matches = [tool for tool in tools if sought.lower() in tool.name.lower()]
        yield from (f"{tool.name}  {_describe_tool(tool)}" for tool in matches)
        if not matches:
            yield f"there is no tool with {sought!r} in its name"


class Human:
    """Shows what is new since the person's last turn and takes one line as the answer.

    Where there are tools, a line that begins with a tool's name calls it (`typed_calls.py` says how), and `?` explains
    them. The end of the input (Ctrl-D) ends the episode with Stop("quit"). Text from the environment cannot steer
    the terminal. Episodes that run at once take turns at asking.
    """

    def __init__(self, ask: Callable[[str], str] = input, say: Callable[[str], object] = print):
        self._ask, self._say = ask, say
        self._terminal = Lock()
        self._displayed: dict[str, list[Message]] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The person's line; other tasks go on meanwhile."""
        displayed = self._displayed.get(key, [])
        displayed_count = len(displayed) if list(messages[: len(displayed)]) == displayed else 0
        answer = await _run_in_daemon_thread(
            lambda: self._turn(messages[displayed_count:], tools, number=len(messages), first=not displayed_count)
        )
        self._displayed[key] = [*messages, answer]
        return Completion(message=answer)

    def release(self, key: str) -> None:
        """Forget what was shown of the conversation `key`."""
        self._displayed.pop(key, None)

    def _turn(self, new: Sequence[Message], tools: Sequence[Tool], *, number: int, first: bool) -> Message:
        with self._terminal:
            for message in new:
                self._say(f"[{message.role}] {printable(message.content)}")
            if tools and first:
                self._say(TYPED_CALL_HINT)
            while True:
                line = self._line()
                if tools and line.startswith("?"):
                    for help_line in describe_tools(line, tools):
                        self._say(printable(help_line))
                    continue
                try:
                    call = parse_typed_call(line, tools, number=number)
                except UsageError as wrong:
                    self._say(printable(str(wrong)))
                    continue
                return assistant("", call) if call is not None else assistant(line)

    def _line(self) -> str:
        try:
            line = self._ask("> ")
        except EOFError as error:
            raise StopEpisode("quit") from error
        return line.encode(errors="replace").decode()  # undecodable input arrives as lone surrogates


async def _run_in_daemon_thread(call: Callable[[], Message]) -> Message:
    """The result of a blocking call in a thread that nothing waits for.

    Not `asyncio.to_thread`: after Ctrl-C the loop would wait for that thread, and so for one more line.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Message] = loop.create_future()

    def settle(answer: Message | None, error: WanderlustError | None) -> None:
        if done.done():  # the episode was cancelled meanwhile
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer or assistant(""))

    def work() -> None:
        answer, failed = None, None
        try:
            with boundary(PolicyFailure):
                answer = call()
        except WanderlustError as error:
            failed = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, answer, failed)

    Thread(target=work, daemon=True).start()
    return await done
