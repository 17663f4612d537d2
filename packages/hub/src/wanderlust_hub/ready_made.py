"""The first index: every ready-made environment that can be made here, in a hub, with its card.

A card is made by the gate of `wander check`. It can be stored, and is taken again as long as it is current: the
environment's own file, its tasks, rubric, settings and limits have the digests that they had. Other code of this
package may have changed since; the card says at which digest of it the gate ran.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, one_line
from wanderlust.evals.gate import MAX_TASKS_COMPARED, SPLITS, check_gate
from wanderlust.runner.engine import run_blocking
from wanderlust.store.provenance import provenance_of, tasks_digest
from wanderlust.tasks.registry import installed_environments, make_environment
from wanderlust.tasks.selection import iter_tasks
from wanderlust_hub.admission import card_bytes, data_lines, refuse
from wanderlust_hub.entry import digest_of
from wanderlust_hub.export import ready_made_draft
from wanderlust_hub.index import Hub, OnProgress
from wanderlust_hub.package_draft import write_wheel
from wanderlust_hub.publish import publish

PASSING = ("wanderlust", "python")
"""Beginnings of the names of digests that may have changed since: our code beside the environment's own file."""
OWN_FILE = "own file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyMade:
    """What came of it."""

    published: tuple[str, ...]
    """Names of environments, in their order."""
    checked: tuple[str, ...]
    """Those of them whose gate ran now, as there was no current card."""
    left_out: Mapping[str, str]
    """Why others are not there, by name."""


def ready_made_names() -> list[str]:
    """Names of the environments that this package brings."""
    found = installed_environments()
    return sorted(name for name, target in found.items() if target.startswith("wanderlust.") and ".hub." not in target)


def publish_ready_made(
    hub: str | Path,
    *,
    key: Path,
    only: Sequence[str] = (),
    cards: Path | None = None,
    stored_only: bool = False,
    on_progress: OnProgress = lambda what, number, of: None,
) -> ReadyMade:
    """Publish all ready-made environments in a hub that exists.

    Args:
        hub: Folder of the hub.
        key: Private SSH key that signs.
        only: Names; by default all.
        cards: Folder of stored cards. Current ones are taken, and others are made and stored there.
        stored_only: Leave out what has no current card, in the place of making one: the time is then bounded.
        on_progress: Called for each environment.

    Returns:
        What was published, and why others were not: settings that they need, packages that are missing, or the gate.
    """
    names, published, checked, left_out = [*only] or ready_made_names(), list[str](), list[str](), dict[str, str]()
    there = {(one.entry.name, one.entry.version) for one in Hub.open(hub).index.listings}
    for number, name in enumerate(names, 1):
        on_progress("environments", number, len(names))
        try:
            draft = ready_made_draft(name)
            if (draft.name, draft.version) in there:
                left_out[name] = f"{draft.name} {draft.version} is there already"
                continue
            env = make_environment(installed_environments()[name])
            card, fresh = _card(name, env, cards, stored_only=stored_only)
            with TemporaryDirectory(prefix="wander-ready-") as scratch:
                body, data = card_bytes(card), b"".join(data_lines(env))
                wheel = write_wheel(draft, Path(scratch))
                publish(wheel, hub=hub, key=key, admission=lambda built, folder, b=body, d=data: (b, d))  # type: ignore[misc]
        except (UsageError, EnvironmentFailure) as error:
            left_out[name] = one_line(str(error), 200)
            continue
        published.append(name)
        checked += [name] if fresh else []
    return ReadyMade(published=tuple(published), checked=tuple(checked), left_out=left_out)


def _card(name: str, env: Environment, cards: Path | None, *, stored_only: bool) -> tuple[dict[str, Any], bool]:
    """The card of an environment, and whether its gate ran for it. Raises UsageError where the gate refuses it."""
    file = None if cards is None else cards / f"{name}.json"
    stored_file = file is not None and file.is_file()
    now = {} if stored_only and not stored_file else current_digests(env)
    if file is not None and stored_file:
        with suppress(ValueError, TypeError, AttributeError):
            stored = json.loads(file.read_bytes())
            if _lasting(stored["digests"]) == _lasting(now) and stored["ok"]:
                return stored, False
    if stored_only:
        raise UsageError(f"it has no current card: `wander hub ready-made HUB {name} --cards FOLDER` makes one")
    try:
        card = run_blocking(lambda: check_gate(env, name=name)).card()
    except WanderlustError as error:
        raise UsageError(f"its gate failed: {one_line(str(error), 200)}") from error
    refuse(name, card)
    card["digests"] = now
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(card_bytes(card))
    return card, True


def current_digests(env: Environment) -> dict[str, str]:
    """The digests of a card, and that of the file in which the environment's class stands."""
    found = {name: digest for name, digest in provenance_of(env).inputs.items() if name != "the tasks"}
    source = inspect.getsourcefile(type(env))
    if source is not None:
        found[OWN_FILE] = digest_of(Path(source).read_bytes())[:16]
    for split in SPLITS:
        with suppress(UsageError):  # an environment need not have every split
            found[f"tasks/{split}"] = tasks_digest(islice(iter_tasks(env, split), MAX_TASKS_COMPARED))
    return found


def _lasting(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if not name.startswith(PASSING)}
