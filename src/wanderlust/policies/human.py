"""A policy that is a person at the terminal.

Tool calls are typed as `App__action name=value name="two words"`; `?` looks up tools.
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
    """Parse a line as a call; None when its first word is no tool's name.

    Values are parsed as JSON where the tool wants something else than a text. Raises UsageError for arguments that
    cannot be parsed or that the tool does not take, and for a name with `__` that no tool has.
    """
    tools_by_name = {tool.name: tool for tool in tools}
    name, _, rest = line.strip().partition(" ")
    if name not in tools_by_name:
        if "__" in name and tools_by_name:
            near = get_close_matches(name, tools_by_name, n=3, cutoff=0.4)
            raise UsageError(f"there is no tool {name!r}" + (f"; there is {', '.join(near)}" if near else ""))
        return None
    tool, arguments = tools_by_name[name], dict[str, Any]()
    wanted: Mapping[str, Any] = tool.schema.get("properties", {})
    while rest := rest.strip():
        named = _NAMED.match(rest)
        if named is None or named[1] not in wanted:
            raise UsageError(f"{name} takes {_describe_tool(tool)}; what is {one_line(rest.split()[0], 40)!r}?")
        arguments[named[1]], rest = _value(rest[named.end() :], wanted[named[1]])
    return ToolCall(id=f"typed-{number}", name=name, arguments=json.dumps(arguments))


def _value(text: str, schema: Mapping[str, Any]) -> tuple[Any, str]:
    """Parse the value that a text begins with; returns it and the rest of the text."""
    kinds = {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))} - {None}
    if text[:1] in ("'", '"'):
        close = text.find(text[0], 1)
        if close < 0:
            raise UsageError(f"the arguments cannot be read: no closing {text[0]} in {one_line(text, 40)}")
        return text[1:close], text[close + 1 :]
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


def _describe_tool(tool: Tool) -> str:
    required = set(tool.schema.get("required", ()))
    names = [name if name in required else f"[{name}]" for name in tool.schema.get("properties", {})]
    return ", ".join(names) or "nothing"


def describe_tools(line: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the lines that answer `?`, `? NAME` or `? WORD`."""
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
    """Show the messages since the person's last turn and read one line as the answer.

    Where there are tools, a line that begins with a tool's name calls it (see `parse_typed_call`), and `?` explains
    them. The end of the input (Ctrl-D) raises StopEpisode("quit"). Control characters from the environment are not
    printed. Episodes that run at once take turns at asking.
    """

    def __init__(self, ask: Callable[[str], str] = input, say: Callable[[str], object] = print):
        self._ask, self._say = ask, say
        self._terminal = Lock()
        self._displayed: dict[str, list[Message]] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Read the person's line; other tasks continue meanwhile."""
        displayed = self._displayed.get(key, [])
        displayed_count = len(displayed) if list(messages[: len(displayed)]) == displayed else 0
        answer = await _run_in_daemon_thread(
            lambda: self._turn(messages[displayed_count:], tools, number=len(messages), first=not displayed_count)
        )
        self._displayed[key] = [*messages, answer]
        return Completion(message=answer)

    def release(self, key: str) -> None:
        """Forget the messages shown of the conversation `key`."""
        self._displayed.pop(key, None)

    def _turn(self, new: Sequence[Message], tools: Sequence[Tool], *, number: int, first: bool) -> Message:
        with self._terminal:
            for message in new:
                self._say(f"[{message.role}] {printable(message.content)}")
            if tools and first:
                self._say(TYPED_CALL_HINT)
            while True:
                try:
                    typed = self._ask("> ")
                except EOFError as error:
                    raise StopEpisode("quit") from error
                line = typed.encode(errors="backslashreplace").decode()  # undecodable input arrives as lone surrogates
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


async def _run_in_daemon_thread(call: Callable[[], Message]) -> Message:
    """Return the result of a blocking call, run in a thread that nothing waits for.

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
