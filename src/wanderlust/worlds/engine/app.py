"""Apps: typed classes whose actions declare all that a world, an agent and a judge need to know of them.

A new app is one file: a class with state, and methods under `@action`. Nothing else has to hear of it.

Parts of long lists, as actions with `offset` and `limit` give them.

Moments as agents write and read them: YYYY-MM-DD HH:MM:SS, UTC. Worlds count seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from inspect import get_annotations, signature, unwrap
from random import Random
from string import Formatter
from types import FunctionType, MethodType
from typing import Any, ClassVar, Protocol, Self, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.tools.function import FunctionTool, ToolError
from wanderlust.worlds.engine.argument_checks import EXACT_CHECK, ArgumentCheck
from wanderlust.worlds.engine.cow_dict import CowDict
from wanderlust.worlds.engine.log import Actor, NotificationLevel

F = TypeVar("F", bound=Callable[..., Any])
LEVEL_RANK: Mapping[NotificationLevel, int] = {"low": 1, "medium": 2, "high": 3, "none": 4}
"""The higher, the fewer are told."""
_MARK = "__action__"


class AppContext(Protocol):
    """What an app may ask of the world it stands in."""

    now: float
    """Seconds of the world's clock; in scenarios seconds since 1970, UTC."""

    def new_id(self, kind: str) -> str:
        """The next id of this kind: 32 hexadecimal digits that follow from the world's seed."""
        ...

    def draw(self, stream: str) -> Random:
        """A generator for the next draw of the stream of this name."""
        ...

    def app(self, name: str) -> App:
        """Another app of the same world."""
        ...

    def find(self, kind: type[A]) -> A | None:
        """The first app of this class, for those that need each other (attachments need files); None without one."""
        ...

    def later(self, seconds: float, app: str, action: str, /, **args: Any) -> None:
        """Have an action happen by itself, that many seconds from now."""
        ...

    def rest(self, seconds: float) -> None:
        """After this action, let time pass until the agent is notified, at most so long."""
        ...


class ArgumentReader(Protocol):
    """What an action needs of a tool: how it is told to a model, and how its arguments are read."""

    name: str
    description: str
    schema: dict[str, Any]

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them. Raises WrongArguments."""
        ...


@dataclass(frozen=True, kw_only=True)
class AppAction:
    """What one can do with an app. Made by `@action`. Not slotted: its tool is made once, when it is first needed."""

    name: str
    function: Callable[..., Any]
    scopes: frozenset[Actor]
    writes: bool
    notify: NotificationLevel
    says: str
    checks: Mapping[str, ArgumentCheck]
    ends_turn: bool
    rank: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", LEVEL_RANK[self.notify])
        names = signature(self.function).parameters
        placeholders = {field for _, field, _, _ in Formatter().parse(self.says) if field is not None}
        if unknown := (placeholders | self.checks.keys()) - names.keys():
            raise UsageError(f"the action {self.name} has no argument {', '.join(sorted(unknown))}: {', '.join(names)}")

    @cached_property
    def tool(self) -> ArgumentReader:
        """The action as the house's function tools see it: name, description, JSON schema, strict reading."""
        return FunctionTool(MethodType(self.function, object()))

    def check(self, argument: str) -> ArgumentCheck:
        """How this argument is compared with an oracle's."""
        return self.checks.get(argument, EXACT_CHECK)

    @property
    def silent(self) -> bool:
        """Whether it never returns anything."""
        return self.function.__annotations__.get("return") in (None, "None")

    def notice(self, args: Mapping[str, Any]) -> str:
        """What the agent is told when it happens."""
        return self.says.format_map(self.complete(args))

    def complete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments together with the defaults of those that were left out: what comparing needs."""
        return {**_defaults(self.function), **args}


def action(
    *scopes: Actor,
    writes: bool = False,
    notify: NotificationLevel = "none",
    says: str = "",
    checks: Mapping[str, ArgumentCheck] | None = None,
    ends_turn: bool = False,
) -> Callable[[F], F]:
    """Makes a method an action.

    `scopes`: whose it is; the agent is offered those of `agent`, and prepared data, the user and the environment may
    use all. `writes`: whether it changes the world, as a verifier counts. `notify`: from which level on the agent is
    told when somebody else does it, in the words of `says`, a format string over the arguments. `checks`: how
    arguments are compared with an oracle's; those not named must be equal. `ends_turn`: the agent then waits.
    """

    def mark(function: F) -> F:
        made = AppAction(
            name=function.__name__,
            function=function,
            scopes=frozenset(scopes),
            writes=writes,
            notify=notify,
            says=says or function.__name__.replace("_", " "),
            checks=checks or {},
            ends_turn=ends_turn,
        )
        if not scopes or unknown_scopes(scopes):
            raise UsageError(f"the action {made.name} needs scopes out of agent, user, env, data")
        setattr(function, _MARK, made)
        return function

    return mark


def unknown_scopes(scopes: Collection[str]) -> set[str]:
    """The scopes that an action cannot have."""
    return set(scopes) - {"agent", "user", "env", "data"}


class App:
    """Something in a world that one can act on.

    Annotated attributes are its state: `Table[SomeRecord]`, or immutable values with a default. All that an action
    changes is in them, so a world can be saved, restored and branched without the app's help. Actions check before
    they write, leave their arguments alone, and raise ToolError (or any error) with a text for the agent.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Further class names under which other formats know this app."""
    actions: ClassVar[Mapping[str, AppAction]] = {}
    _fields: ClassVar[Mapping[str, Any]] = {}
    _tables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str = "", /, **state: Any):
        """An app as it is when its world starts; `name` is the class's own unless given."""
        fields = self.fields()
        if unknown := state.keys() - fields.keys():
            raise UsageError(f"{type(self).__name__} has no state {', '.join(sorted(unknown))}: {', '.join(fields)}")
        self.name, self.context = name or type(self).__name__, _no_context()
        for key, hint in fields.items():
            value = state.get(key, getattr(type(self), key, None))
            if get_origin(hint) is CowDict:
                value = value.branch() if isinstance(value, CowDict) else CowDict(value)
            self.__dict__[key] = value

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = dict.fromkeys(name for part in reversed(cls.__mro__) for name in vars(part))
        marked = {name: getattr(vars(cls).get(name) or getattr(cls, name, None), _MARK, None) for name in names}
        cls.actions = {name: action for name, action in marked.items() if isinstance(action, AppAction)}

    @classmethod
    def fields(cls) -> Mapping[str, Any]:
        """The type of each part of the state."""
        if "_fields" not in cls.__dict__:
            cls._fields = _fields(cls)
            cls._tables = tuple(key for key, hint in cls._fields.items() if get_origin(hint) is CowDict)
        return cls._fields

    @property
    def world(self) -> AppContext:
        """Where the app stands."""
        if self.context is None:
            raise UsageError(f"this {self.name} belongs to no world (any more): ask the world for it, by app(name)")
        return self.context

    @property
    def now(self) -> float:
        """The time in the app's world."""
        return self.world.now

    def new_id(self) -> str:
        """The next id in this app."""
        return self.world.new_id(self.name)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {key: msgspec.to_builtins(_plain_state(getattr(self, key))) for key in self.fields()}

    @classmethod
    def load(cls, name: str, state: Mapping[str, Any]) -> Self:
        """The app with the state that `state` gave; also from JSON. Raises UsageError when it does not fit."""
        fields = cls.fields()
        try:
            return cls(name, **{key: _read_state(value, fields.get(key, Any)) for key, value in state.items()})
        except msgspec.ValidationError as error:
            raise UsageError(f"the state of {name or cls.__name__} does not fit {cls.__name__}: {error}") from error

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """The app with ARE's state of it; to be overridden where that looks different. What it does not know is left.

        May raise KeyError, TypeError or ValueError besides UsageError: whoever reads files says where it was.
        """
        return cls.load(name, {key: value for key, value in state.items() if key in cls.fields()})

    def to_are(self) -> dict[str, Any]:
        """The state as ARE has it, for `from_are` to read again."""
        return self.state()

    def bound_to(self, context: AppContext) -> Self:
        """A twin that stands in `context` and whose writes this one does not see."""
        twin = object.__new__(type(self))
        own = twin.__dict__
        own.update(self.__dict__)
        own["context"] = context
        for key in self._tables:
            own[key] = own[key].branch()
        return twin


A = TypeVar("A", bound=App)


def _no_context() -> AppContext | None:
    return None


@cache
def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | (function.__kwdefaults__ or {})


@cache
def argument_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each argument of an action's function."""
    return {name: hint for name, hint in get_type_hints(function, include_extras=True).items() if name != "return"}


def _fields(cls: type[App]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    try:
        for part in reversed(cls.__mro__):
            own = (unwrap(one) for one in vars(part).values() if isinstance(one, FunctionType))
            names = next((one.__globals__ for one in own), None)
            hints |= get_annotations(part, globals=names, eval_str=True)  # a method knows where its class was written
    except NameError as error:
        raise UsageError(f"the state of {cls.__name__} cannot be read: {one_line(str(error))}") from error
    fields = {key: hint for key, hint in hints.items() if get_origin(hint) is not ClassVar}
    for key, hint in fields.items():
        if shared := _changeable(hint):
            raise UsageError(f"{cls.__name__}.{key}: branches would share a {shared}: use Table, a tuple or a Mapping")
        if not hasattr(cls, key):
            raise UsageError(f"{cls.__name__}.{key} needs a default (for a table: Table())")
    return fields


def _changeable(hint: Any) -> str:
    """What in a type could be changed behind a world's back; empty for nothing."""
    if (get_origin(hint) or hint) in (list, dict, set, bytearray):
        return str(hint)
    parts = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        parts = tuple(get_type_hints(hint).values())
    return next(filter(None, map(_changeable, parts)), "")


def _plain_state(value: Any) -> Any:
    return value.rows() if isinstance(value, CowDict) else value


def _read_state(value: Any, hint: Any) -> Any:
    if get_origin(hint) is CowDict:
        (row,) = get_args(hint)
        return CowDict(msgspec.convert(_plain_state(value), dict[str, row]))  # type: ignore[valid-type]
    return msgspec.convert(value, hint)


T = TypeVar("T")


class PageExtent(TypedDict):
    """Which part of how many."""

    range: tuple[int, int]
    total: int


def page_of(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """The rows from `offset` on, at most `limit`; none beyond the end. Raises ToolError for what is negative."""
    if offset < 0 or limit < 0:
        raise ToolError("offset and limit must not be negative")
    return rows[offset : offset + limit]


def page_extent(rows: Sequence[object], offset: int, limit: int) -> PageExtent:
    """Where that part lies."""
    return PageExtent(range=(offset, offset + len(page_of(rows, offset, limit))), total=len(rows))


TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def read_time(text: str, what: str = "the time") -> float:
    """The moment in seconds since 1970. Raises ToolError, which names it by `what`, when it is written otherwise."""
    try:
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ToolError(f"{what} must be written as YYYY-MM-DD HH:MM:SS, not {text[:40]!r}") from error


def format_time(seconds: float, form: str = TIME_FORMAT) -> str:
    """The moment as text."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime(form)


def within(seconds: float, since: str | None, until: str | None) -> bool:
    """Whether a moment lies between two written ones; both belong to it, and None is no bound."""
    after = since is None or read_time(since, "min_date") <= int(seconds)
    return after and (until is None or int(seconds) <= read_time(until, "max_date"))
