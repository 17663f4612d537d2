"""Make tools of plain typed Python functions, and toolsets, which open the tools of one episode and close them after.

The function's signature gives the schema, its docstring the description. The text of a `ToolError` goes to the model;
`ToolFailure` is for faults of the machinery behind a tool.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import (
    Annotated,
    Any,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
    runtime_checkable,
)
from weakref import WeakKeyDictionary

import docstring_parser
import msgspec
from msgspec import UNSET, Meta, UnsetType

from wanderlust.environment import Episode
from wanderlust.errors import UsageError, WanderlustError, one_line
from wanderlust.tools.threads import SHARED_THREADS
from wanderlust.types import Tool


class ToolError(WanderlustError):
    """The tool cannot do what was asked: the text goes to the model unchanged, and the episode continues."""


class WrongArguments(ToolError):
    """The arguments do not fit the schema; the text names the field."""


T = TypeVar("T")
TOOL_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of tools that every endpoint accepts."""


@dataclass(frozen=True, slots=True)
class _Inject:
    """Marks a parameter that the environment fills in."""


Injected = Annotated[T, _Inject()]
"""`shop: Injected[Shop]`: the environment fills it in by `bind`, and the model never sees it."""


class FunctionTool:
    """A Python function that a model can call; made by `tool`.

    Arguments are checked strictly against the function's type hints. Functions that are not asynchronous run in a
    thread, so they may block. Results other than strings are rendered as JSON.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        timeout: float | None = None,
        ordered: bool | None = None,
    ):
        """`timeout` in wall-clock seconds per call; None takes the caller's.

        `ordered` calls of one message run one after another, in the order of the message. None means so when the
        function has state that calls share: a bound method, a closure, or injected arguments.
        """
        self.function, self.timeout = function, timeout
        self._signature = _signature(function)
        self.name = name or self._signature.name
        if not TOOL_NAME_PATTERN.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} cannot be a tool's name: letters, digits, _ and -, at most 64; give a name="
            )
        self.description = description or self._signature.description
        self.schema: dict[str, Any] = self._signature.schema
        stateful = bool(
            self._signature.injected
            or getattr(function, "__self__", None)
            or bool(getattr(function, "__closure__", None))
        )
        self.ordered = stateful if ordered is None else ordered
        self._bound: Mapping[str, Any] = {}

    def bind(self, **values: Any) -> FunctionTool:
        """Copy the tool with values for its injected parameters. Raises UsageError for any other name."""
        unknown = values.keys() - self._signature.injected
        if unknown:
            raise UsageError(f"the tool {self.name} has no injected parameter {', '.join(sorted(unknown))}")
        bound = FunctionTool.__new__(FunctionTool)
        bound.__dict__.update(self.__dict__ | {"_bound": {**self._bound, **values}})
        return bound

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert arguments (JSON data) to the function's types. Raises WrongArguments, which names the field."""
        return self._signature.parse_arguments(arguments)

    async def __call__(self, /, **arguments: Any) -> str:
        """Check the arguments (JSON data), call the function, and return its result as text.

        Raises WrongArguments of one line that names the field, and every exception of the function.
        """
        missing = self._signature.injected - self._bound.keys()
        if missing:
            raise UsageError(f"the tool {self.name} needs {', '.join(sorted(missing))}: use bind() in the toolset")
        call = partial(self.function, **self._signature.parse_arguments(arguments), **self._bound)
        if self._signature.asynchronous:
            return as_text(await call())
        answer = await SHARED_THREADS.run(call)
        return as_text(await answer if inspect.isawaitable(answer) else answer)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str = "", description: str = "", timeout: float | None = None, ordered: bool | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, as `tool(f)`, `@tool` or `@tool(timeout=5)`; options as of FunctionTool.

    Raises UsageError of one line for a parameter without a type hint, or with one that JSON cannot be converted to.
    """
    return partial(FunctionTool, **options) if function is None else FunctionTool(function, **options)


def as_text(value: Any) -> str:
    """Render a tool's result for a model: strings unchanged, all else as JSON where possible."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return msgspec.json.encode(value, enc_hook=str).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signature:
    """The parts of a function's signature and docstring that a tool needs."""

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    injected: frozenset[str]
    asynchronous: bool

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the arguments to the function's types; omitted ones stay omitted."""
        try:
            try:
                parsed = msgspec.convert(arguments, self.arguments)
            except msgspec.ValidationError:  # JSON's keys may stand for numbers; trying that takes three times as long
                parsed = msgspec.convert(arguments, self.arguments, str_keys=True)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise WrongArguments(one_line(f"wrong arguments for {self.name}: {error}", 500)) from error
        return {name: getattr(parsed, name) for name in arguments}


_SIGNATURES: WeakKeyDictionary[Any, _Signature] = WeakKeyDictionary()
"""Signatures by function: toolsets are made anew for every episode, their functions are not."""


def _signature(function: Callable[..., Any]) -> _Signature:
    plain = _unwrap_function(function)
    if function is not plain and not inspect.ismethod(function):
        return _inspect_function(function)
    # A method's signature depends on being bound, but then always in the same way.
    if plain not in _SIGNATURES:
        _SIGNATURES[plain] = _inspect_function(function)
    return _SIGNATURES[plain]


def _inspect_function(function: Callable[..., Any]) -> _Signature:
    name = getattr(function, "__name__", "") or getattr(_unwrap_function(function), "__name__", type(function).__name__)
    try:
        hints = get_type_hints(_unwrap_function(function), include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(f"the type hints of {name} cannot be read: {one_line(str(error))}") from error
    summary, descriptions = _parse_docstring(inspect.getdoc(function) or "")
    fields, injected, defaults = [], set(), {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"the parameter {parameter} of {name} has no name that a call could give")
        if parameter.name not in hints:
            raise UsageError(f"the parameter {parameter.name!r} of {name} needs a type hint: a schema is made of it")
        hint = hints[parameter.name]
        if get_origin(hint) is Annotated and any(isinstance(extra, _Inject) for extra in get_args(hint)[1:]):
            injected.add(parameter.name)
            continue
        text = descriptions.get(parameter.name)
        field = Annotated[hint, Meta(description=text)] if text is not None else hint
        if parameter.default is not parameter.empty:
            defaults[parameter.name] = parameter.default
            field = field | UnsetType
        fields.append((parameter.name, field, *([UNSET] if parameter.name in defaults else [])))
    arguments = _structure(name, fields)
    return _Signature(
        name=name,
        description=summary,
        schema=_schema(arguments, defaults),
        arguments=arguments,
        injected=frozenset(injected),
        asynchronous=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_unwrap_function(function)),
    )


def _unwrap_function(function: Callable[..., Any]) -> Any:
    """The function behind a method, a partial or an object that can be called."""
    if isinstance(function, partial):
        return _unwrap_function(function.func)
    if inspect.ismethod(function):
        return function.__func__
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def _structure(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    """Make a type of all parameters together. Raises UsageError naming the parameter that JSON cannot express."""
    structure = msgspec.defstruct("arguments", fields, forbid_unknown_fields=True, kw_only=True)
    try:
        msgspec.json.Decoder(structure)
        msgspec.json.schema(structure)
    except (TypeError, NameError) as error:
        for field in fields if len(fields) > 1 else ():
            _structure(name, [field])
        culprit = ", ".join(repr(field[0]) for field in fields)
        reason = one_line(str(error).rpartition("\n")[2])
        raise UsageError(f"the parameter {culprit} of {name} cannot be read from JSON: {reason}") from error
    return structure


def _schema(arguments: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Make the JSON schema of an object with the arguments, as chat endpoints take it."""
    _, definitions = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = definitions.pop("arguments")
    del schema["title"]
    for name, default in defaults.items():
        try:
            schema["properties"][name]["default"] = msgspec.json.decode(msgspec.json.encode(default))
        except (TypeError, ValueError, msgspec.MsgspecError):  # a default that JSON cannot express is left out
            continue
    return schema | ({"$defs": definitions} if definitions else {})


def _parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a docstring of Google, NumPy, reST or Epydoc style into the description and those of each parameter."""
    try:
        parsed = docstring_parser.parse(docstring)
    except docstring_parser.ParseError:
        return docstring.strip(), {}
    descriptions = {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}
    return (parsed.description or "").strip(), descriptions


@runtime_checkable
class Toolset(Protocol):
    """Open the tools of one episode."""

    def open(self, episode: Episode) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """The tools, inside the block; leaving it frees their resources, however the episode ended.

        After a limit the block is left as after the last answer; a failure or a cancellation is thrown into it.
        """
        ...


ToolSource: TypeAlias = Tool | Toolset | Callable[..., Any]
"""A tool, a toolset, or a plain typed function."""


@dataclass(frozen=True, eq=False)
class _GeneratorToolset:
    """A toolset written as an asynchronous generator."""

    make: Callable[[Episode], AsyncIterator[Iterable[ToolSource]]]

    @asynccontextmanager
    async def open(self, episode: Episode) -> AsyncIterator[Sequence[Tool]]:
        """Run the generator to its `yield`, and to its end after the block."""
        async with asynccontextmanager(self.make)(episode) as sources, open_toolsets(sources, episode) as tools:
            yield tools


def toolset(make: Callable[[Episode], AsyncIterator[Iterable[ToolSource]]]) -> Toolset:
    """`@toolset async def shop(episode): cart = []; yield [...]; episode.state["cart"] = cart`.

    It may yield functions, methods of an object of this episode, tools, and further toolsets. What stands after `yield`
    runs after the last answer and after every limit, before the episode is judged. A failure and a cancellation are
    raised at `yield`: what must happen then, too, stands in `finally`.
    """
    return _GeneratorToolset(make)


@asynccontextmanager
async def open_toolsets(sources: Iterable[ToolSource], episode: Episode) -> AsyncIterator[list[Tool]]:
    """Open the tools of all sources for the time of the block. Raises UsageError when two have the same name.

    A limit ends the block in silence, and StopEpisode is raised where it comes before the block. Toolsets are closed in
    reverse order, and a limit that is met while one is closed is not thrown into the others.
    """
    opened = False
    async with AsyncExitStack() as stack:
        stack.enter_context(episode.playing())
        tools: list[Tool] = []
        for source in sources:
            if isinstance(source, Toolset):
                tools += await stack.enter_async_context(source.open(episode))
                stack.enter_context(episode.playing())  # what ends the play is not thrown into it
            elif all(hasattr(source, name) for name in ("name", "description", "schema")):
                tools.append(cast(Tool, source))
            elif callable(source):
                tools.append(tool(source))
            else:
                raise UsageError(f"{source!r} is neither a tool, nor a toolset, nor a function")
        names = [one.name for one in tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"two tools are called {', '.join(sorted(twice))}: a call could mean either")
        opened = True
        yield tools
    if not opened and episode.play.stop is not None:
        raise episode.play.stop
