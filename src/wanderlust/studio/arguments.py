"""Arguments that several commands take, described once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.core.contracts import Policy
from wanderlust.core.errors import UsageError
from wanderlust.policies.hardware import Hardware

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
Environments = Annotated[
    str,
    Parameter(
        help="Name of an environment, package.module:Name or file.py:Name, and settings after it:"
        " reasoning-gym,dataset=countdown"
    ),
]
Policies = Annotated[
    str,
    Parameter(
        help="A run or checkpoint folder, with settings after it (,device=cuda,precision=bf16), an endpoint's URL, a"
        " player of the environment (its oracle, for one), a script as package.module:Name, or an evaluation's folder,"
        " which is replayed."
    ),
]
Run = Annotated[Path, Parameter(help="Folder of a run, or its rollouts.db.")]
Computing = Annotated[Hardware, Parameter(name="*")]
Json = Annotated[bool, Parameter(help="Print the result as one JSON object.")]


def fresh(out: Path | None) -> None:
    """Raises UsageError when there is something at `out` already."""
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already: name another folder with --out")


@asynccontextmanager
async def opened(policies: Iterable[Policy]) -> AsyncIterator[None]:
    """Keeps those policies open that hold something, for the time of the block."""
    async with AsyncExitStack() as stack:
        for policy in policies:
            if isinstance(policy, AbstractAsyncContextManager):
                await stack.enter_async_context(policy)
        yield
