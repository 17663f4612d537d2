"""Runs as a folder of files that any file server shows: the same page, and what the routes say, written down.

One rollout is in memory at a time. The page comes last, so a folder with an `index.html` is whole.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Protocol

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.queries import glances
from wanderlust.store.reader import COLUMN_OF, RunReader
from wanderlust.store.run_folder import EVALUATION
from wanderlust.studio.app import ENCODINGS, UNBUILT, is_built
from wanderlust.studio.auth import POLICY
from wanderlust.studio.responses import encoded
from wanderlust.studio.rollouts import TOKENIZER, cells, tokenizer_of, told
from wanderlust.studio.rollouts import opened as whole
from wanderlust.studio.run_index import Catalogue, Place, RunInfo, opened, settings_of
from wanderlust.studio.runs import described, measured
from wanderlust.studio.world_view import world_of
from wanderlust.types import Rollout

TEXT = 2_000_000
"""Characters of a message before it is cut: there is no server that could be asked for the rest."""
EVENTS = 1_000_000
_BASE = re.compile(r"<base [^>]*>")
_ALONE = f'<base href="./" data-studio="static" />\n<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
_NAME = re.compile(r"[\w. ~+-]*")
"""Stages that can be a part of a file's name."""


class Teller(Protocol):
    """Whoever hears how it goes; `studio/progress.py` has one."""

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """So many rollouts of a run are written."""
        ...

    def tell(self, line: str) -> None:
        """What is left out, and why."""
        ...


def export(roots: Sequence[Path], out: Path, *, page: Path, teller: Teller) -> int:
    """Write the runs at `roots` into the new folder `out`; returns how many rollouts that were.

    Raises UsageError when there is something at `out`, no page is built, or no run can be read.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already: name another folder with --export")
    if not is_built(page):
        raise UsageError(UNBUILT)
    catalogue = Catalogue(roots)
    infos = [replace(info, path=info.name, running=False, controllable=False) for info in catalogue.refresh()]
    if all(info.problem for info in infos):
        raise UsageError(infos[0].problem or "there are no runs" if infos else "there are no runs")
    out.mkdir(parents=True, exist_ok=True)
    written = sum(_run(catalogue.place(info.key), info, out / "data" / info.key, teller=teller) for info in infos)
    _put(out / "data" / "runs.json", {"runs": infos})
    _page(page, out)
    return written


def _page(page: Path, out: Path) -> None:
    """The page without what is packed for our own server, told that it stands alone."""
    packed = shutil.ignore_patterns("index.html", *(f"*{suffix}" for _, suffix in ENCODINGS))
    shutil.copytree(page, out, ignore=packed, dirs_exist_ok=True)
    text = (page / "index.html").read_text()
    alone, found = _BASE.subn(_ALONE, text, count=1)
    if not found:
        raise UsageError(f"{page / 'index.html'}: has no <base>, so it cannot be told where its data is")
    (out / "index.html").write_text(alone)


def _run(place: Place, info: RunInfo, folder: Path, *, teller: Teller) -> int:
    body = described(place, info)
    _put(folder / "run.json", {**body, "path": info.name})
    if info.problem:
        teller.tell(f"{info.key}: {info.problem}")
        return 0
    with opened(place) as store:
        store.select("begin")  # whatever is written meanwhile is not seen: all files tell of one moment
        _figures(store, folder)
        _rows(store, folder / "rows.json")
        count = 0
        for count, why in enumerate(_rollouts(store, place, folder / "rollouts"), 1):
            if why:
                teller.tell(f"{info.key}: {why}; left out")
            teller.show(f"export {info.key}", count, of=max(count, info.rollouts), figures={})
        return count


def _figures(store: RunReader, folder: Path) -> None:
    chosen = measured(store, "")
    for stage in ("", *chosen["stages"]):
        if _NAME.fullmatch(stage):
            _put(folder / f"metrics.{stage}.json", measured(store, stage) if stage else chosen)
    _put(folder / "events.json", {"events": [asdict(event) for event in store.events()[:EVENTS]]})


def _rows(store: RunReader, file: Path) -> None:
    """The table by columns; answers and targets come out of one pass over the records."""
    with file.open("wb") as rows, tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as targets:
        rows.write(b'{"names":' + encoded([*COLUMN_OF, "answer", "target"]) + b',"columns":[')
        for column in COLUMN_OF.values():
            found = store.each(f"select {column} from rollouts order by id")
            _column(rows, (value for some in found for (value,) in some))
            rows.write(b",")
        for answer, target in _said(store):
            answers.write(encoded(answer) + b",")
            targets.write(encoded(target) + b",")
        for part, end in ((answers, b","), (targets, b"]}")):
            _copied(part, rows)
            rows.write(end)


def _column(rows: IO[bytes], values: Iterator[Any]) -> None:
    rows.write(b"[")
    for n, value in enumerate(values):
        rows.write((b"," if n else b"") + encoded(value))
    rows.write(b"]")


def _copied(part: IO[bytes], rows: IO[bytes]) -> None:
    """As an array: the comma at the end of what was written becomes its closing bracket."""
    rows.write(b"[")
    part.seek(0, 2)
    part.truncate(max(part.tell() - 1, 0))
    part.seek(0)
    shutil.copyfileobj(part, rows)
    rows.write(b"]")


def _said(store: RunReader) -> Iterator[tuple[str | None, str | None]]:
    for some in store.each("select id from rollouts order by id"):
        for first in range(0, len(some), 500):
            ids = [id for (id,) in some[first : first + 500]]
            found = glances(store, ids)
            for id in ids:
                yield cells(found.get(id))


def _rollouts(store: RunReader, place: Place, folder: Path) -> Iterator[str]:
    """One file after the other; yields what is wrong with a record, or nothing."""
    settings = settings_of(place.folder, EVALUATION)
    tokenizer = tokenizer_of(place.folder, settings_of(place.folder))
    folder.mkdir(parents=True)
    for some in store.each("select id, env from rollouts order by id"):
        for id, env in some:
            try:
                _put(folder / f"{id}.json", whole(store, id, settings, most=TEXT))
                _beside(store.get(id), folder / str(id), place=place, env=env, tokenizer=tokenizer)
            except StoreError as error:
                yield one_line(str(error))
            else:
                yield ""


def _beside(played: Rollout, stem: Path, *, place: Place, env: str, tokenizer: Path | None) -> None:
    """Its tokens, and its world."""
    for seat, trajectory in enumerate(played.trajectories):
        for turn, taken in enumerate(trajectory.turns):
            if taken.tokens is not None:
                body = told(trajectory, turn, tokenizer)
                _put(Path(f"{stem}.tokens.{seat}.{turn}.json"), {**body, "tokenizer": tokenizer and TOKENIZER})
    if "log" in played.state:
        _put(Path(f"{stem}.world.json"), world_of(played, place.folder, env).record(whole=True))


def _put(file: Path, body: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encoded(body))
