"""Apps: typed classes whose actions declare what a world, an agent and a judge need to know of them.

A new app is one file: a class with state, and methods under `@action`. Worlds count seconds since 1970; agents write
and read times as YYYY-MM-DD HH:MM:SS, UTC (`read_time`, `format_time`). `page_of` and `page_extent` give parts of long
lists to actions with `offset` and `limit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from inspect import get_annotations, signature, unwrap
from random import Random
from string import Formatter
from types import FunctionType, MethodType
from typing import Any, ClassVar, Protocol, Self, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from wanderlust.errors import UsageError, one_line, quoted
from wanderlust.tools.function import FunctionTool, ToolError
from wanderlust_worlds.engine.argument_checks import EXACT_CHECK, ArgumentCheck
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.log import Actor, NotificationLevel

F = TypeVar("F", bound=Callable[..., Any])
LEVEL_RANK: Mapping[NotificationLevel, int] = {"low": 1, "medium": 2, "high": 3, "none": 4}
"""Order of the levels: an action notifies where its rank is at most the world's."""
_MARK = "__action__"


class AppContext(Protocol):
    """The part of a world that its apps may use."""

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
        """Have an action executed by the environment in `seconds`."""
        ...

    def rest(self, seconds: float) -> None:
        """After this action, let time pass until the agent is notified, at most so long."""
        ...


class ArgumentReader(Protocol):
    """The part of a tool that an action needs: its description for a model, and the reading of arguments."""

    name: str
    description: str
    schema: dict[str, Any]

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them. Raises WrongArguments."""
        ...


@dataclass(frozen=True, kw_only=True)
class AppAction:
    """The declaration of an action, made by `@action`. Not slotted: its tool is made once, at the first use."""

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
        """The comparison of this argument with an oracle's."""
        return self.checks.get(argument, EXACT_CHECK)

    @property
    def silent(self) -> bool:
        """Whether it never returns anything."""
        return self.function.__annotations__.get("return") in (None, "None")

    def notice(self, args: Mapping[str, Any]) -> str:
        """The text that notifies the agent of this action."""
        return self.says.format_map(self.complete(args))

    def complete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments together with the defaults of those that were left out: what comparing needs."""
        return {**self._defaults, **args}

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        function: Any = self.function
        defaults = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        positional = zip(names[len(names) - len(defaults) :], defaults, strict=True)
        return dict(positional) | (function.__kwdefaults__ or {})


def action(
    *scopes: Actor,
    writes: bool = False,
    notify: NotificationLevel = "none",
    says: str = "",
    checks: Mapping[str, ArgumentCheck] | None = None,
    ends_turn: bool = False,
) -> Callable[[F], F]:
    """Decorate a method as an action.

    `scopes`: the agent is offered the actions of `agent`; prepared data, the user and the environment may use all.
    `writes`: whether it changes the world, as a verifier counts. `notify`: the level from which on the agent is
    notified when another actor uses it; `says` is the text, a format string over the arguments. `checks`: how
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
    """One part of a world: state, and the actions on it.

    Annotated attributes are its state: `CowDict[SomeRecord]`, or immutable values with a default. All that an action
    changes is in them, so a world can be saved, restored and branched without the app's help. Actions check before
    they write, leave their arguments alone, and raise ToolError (or any error) with a text for the agent.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Further class names under which other formats know this app."""
    outside: ClassVar[bool] = False
    """Whether its actions reach something that no branch of the world has a copy of."""
    actions: ClassVar[Mapping[str, AppAction]] = {}
    _fields: ClassVar[Mapping[str, Any]] = {}
    _tables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str = "", /, **state: Any):
        """An app as it is when its world starts; `name` is the class's own unless given."""
        fields = self.fields()
        if unknown := state.keys() - fields.keys():
            raise UsageError(f"{type(self).__name__} has no state {', '.join(sorted(unknown))}: {', '.join(fields)}")
        self.name = name or type(self).__name__
        self.context: AppContext | None = None
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
        """The world of the app. Raises UsageError when it belongs to none."""
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
        fields, own = cls.fields(), {}
        try:
            for key, value in state.items():
                hint = fields.get(key, Any)
                if get_origin(hint) is CowDict:
                    (row,) = get_args(hint)
                    own[key] = CowDict(msgspec.convert(_plain_state(value), dict[str, row]))  # type: ignore[valid-type]
                else:
                    own[key] = msgspec.convert(value, hint)
            return cls(name, **own)
        except msgspec.ValidationError as error:
            raise UsageError(f"the state of {name or cls.__name__} does not fit {cls.__name__}: {error}") from error

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """The app with the state that ARE's JSON has of it; unknown parts are left out. Override where the two differ.

        May raise KeyError, TypeError or ValueError besides UsageError: the reader of the file adds its name.
        """
        return cls.load(name, {key: value for key, value in state.items() if key in cls.fields()})

    def to_are(self) -> dict[str, Any]:
        """The state as ARE has it, for `from_are` to read again."""
        return self.state()

    def user_names(self) -> tuple[str, ...]:
        """The names by which this app knows the user; lists of people may have them or not."""
        return ()

    def user_addresses(self) -> tuple[str, ...]:
        """Where the user lives, as far as this app knows."""
        return ()

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
    """Name a type within `hint` that could be changed in place, which branches would share; empty for none."""
    if (get_origin(hint) or hint) in (list, dict, set, bytearray):
        return str(hint)
    parts = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        parts = tuple(get_type_hints(hint).values())
    return next(filter(None, map(_changeable, parts)), "")


def _plain_state(value: Any) -> Any:
    return value.rows() if isinstance(value, CowDict) else value


T = TypeVar("T")


def row_of(rows: Mapping[str, T], key: str, what: str) -> T:
    """The row of this key. Raises ToolError, which names it by `what`, when there is none."""
    if key not in rows:
        raise ToolError(f"there is no {what} {key!r}")
    return rows[key]


def user_names_of(apps: Iterable[App]) -> frozenset[str]:
    """All names by which these apps know the user."""
    return frozenset(name for app in apps for name in app.user_names())


class PageExtent(TypedDict):
    """The range of a part, and the number of all rows."""

    range: tuple[int, int]
    total: int


def page_of(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """The rows from `offset` on, at most `limit`; none beyond the end. Raises ToolError for what is negative."""
    if offset < 0 or limit < 0:
        raise ToolError("offset and limit must not be negative")
    return rows[offset : offset + limit]


def page_extent(rows: Sequence[object], offset: int, limit: int) -> PageExtent:
    """The range of the part that `page_of` gives, and the number of all rows."""
    return PageExtent(range=(offset, offset + len(page_of(rows, offset, limit))), total=len(rows))


TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def read_time(text: str, what: str = "the time") -> float:
    """The moment in seconds since 1970. Raises ToolError, which names it by `what`, when it is written otherwise."""
    try:
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ToolError(f"{what} must be written as YYYY-MM-DD HH:MM:SS, not {quoted(text, 40)}") from error


def format_time(seconds: float, form: str = TIME_FORMAT) -> str:
    """The moment as text."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime(form)


def within(seconds: float, since: str | None, until: str | None) -> bool:
    """Whether a moment lies between two written ones; both belong to it, and None is no bound."""
    after = since is None or read_time(since, "min_date") <= int(seconds)
    return after and (until is None or int(seconds) <= read_time(until, "max_date"))
