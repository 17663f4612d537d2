"""Export runs as a folder of files for any file server: the same page, and the routes' answers as files.

One rollout is in memory at a time. The page is written last, so a folder with an `index.html` is complete.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.queries import load_previews
from wanderlust.store.reader import COLUMN_BY_FIELD, RunReader
from wanderlust.store.run_folder import EVALUATION_RECIPE
from wanderlust.store.scores import SCORES_JOIN
from wanderlust.studio.application import ENCODINGS, NOT_BUILT_MESSAGE, is_built
from wanderlust.studio.auth import CONTENT_SECURITY_POLICY
from wanderlust.studio.requests import encode_json
from wanderlust.studio.results import evaluation_result
from wanderlust.studio.rollouts import TOKENIZER_FILE, answer_and_target, token_records, tokenizer_file
from wanderlust.studio.rollouts import rollout_record as whole
from wanderlust.studio.run_index import (
    RunIndex,
    RunInfo,
    RunLocation,
    environment_column,
    open_run_store,
    settings_of,
)
from wanderlust.studio.runs import run_record, stage_metrics
from wanderlust.studio.viewers import ExportedViewer, ShownRollout, Viewer, installed_viewers

MAX_EXPORT_CHARS = 2_000_000
"""Longest message before it is cut: there is no server for the rest."""
MAX_EXPORTED_EVENTS = 1_000_000
"""Most events of a run that are exported."""
_BASE = re.compile(r"<base [^>]*>")
_STATIC_BASE = (
    '<base href="./" data-studio="static" />\n'
    f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}" />'
)
_NAME = re.compile(r"[\w. ~+-]*")
"""Stages that can be a part of a file's name."""


class ExportProgress(Protocol):
    """Receives the progress of an export, as in `runner/progress.py`."""

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Report that `step` rollouts of a run are written."""
        ...

    def log_line(self, line: str) -> None:
        """Report an omission and its reason."""
        ...


def export_site(roots: Sequence[Path], out: Path, *, page: Path, progress: ExportProgress) -> int:
    """Write the runs at `roots` into the new folder `out`; returns the number of rollouts.

    Raises UsageError when `out` is not empty, no page is built, or no run can be read.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already: name another folder with --export")
    if not is_built(page):
        raise UsageError(NOT_BUILT_MESSAGE)
    catalogue, viewers = RunIndex(roots), installed_viewers()
    infos = [replace(info, path=info.name, running=False, controllable=False) for info in catalogue.refresh()]
    if all(info.problem for info in infos):
        raise UsageError(infos[0].problem or "there are no runs" if infos else "there are no runs")
    out.mkdir(parents=True, exist_ok=True)
    written = sum(
        _run(catalogue.location(info.key), info, out / "data" / info.key, viewers=viewers, progress=progress)
        for info in infos
    )
    _write_json(out / "data" / "runs.json", {"runs": infos})
    compressed = shutil.ignore_patterns("index.html", *(f"*{suffix}" for _, suffix in ENCODINGS))
    shutil.copytree(page, out, ignore=compressed, dirs_exist_ok=True)
    text = (page / "index.html").read_text()
    static_text, replaced = _BASE.subn(_STATIC_BASE, text, count=1)
    if not replaced:
        raise UsageError(f"{page / 'index.html'}: has no <base>, so it cannot be told where its data is")
    (out / "index.html").write_text(static_text)
    return written


def _run(
    place: RunLocation, info: RunInfo, folder: Path, *, viewers: Sequence[Viewer], progress: ExportProgress
) -> int:
    body = run_record(place, info)
    _write_json(folder / "run.json", {**body, "path": info.name})
    if info.problem:
        progress.log_line(f"{info.key}: {info.problem}")
        return 0
    with open_run_store(place) as store:
        store.select("begin")  # one transaction: all files are of one moment, though the run may go on
        chosen = stage_metrics(store, "")
        for stage in ("", *chosen["stages"]):
            if _NAME.fullmatch(stage):
                _write_json(folder / f"metrics.{stage}.json", stage_metrics(store, stage) if stage else chosen)
        _write_json(
            folder / "events.json", {"events": [asdict(event) for event in store.events()[:MAX_EXPORTED_EVENTS]]}
        )
        if info.kind == "evaluation":
            try:
                _write_json(folder / "result.json", evaluation_result(place.folder, store))
            except UsageError as error:
                _write_json(folder / "result.json", {"error": one_line(str(error), 1000)})
        _rows(store, folder / "rows.json")
        count = 0
        for count, why in enumerate(_rollouts(store, place, folder / "rollouts", viewers=viewers), 1):
            if why:
                progress.log_line(f"{info.key}: {why}; left out")
            progress.log_step(f"export {info.key}", count, of=max(count, info.rollouts), metrics={})
        return count


def _rows(store: RunReader, file: Path) -> None:
    """Write the table by columns; answers and targets come from one pass over the records."""
    with file.open("wb") as rows, tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as targets:
        scores = {name: f"s{number}" for name, number in store.score_names().items()}
        names = [*COLUMN_BY_FIELD, *scores, "answer", "target"]
        rows.write(b'{"names":' + encode_json(names) + b',"columns":[')
        join = SCORES_JOIN if scores else ""
        for column in {**COLUMN_BY_FIELD, "env": environment_column(store), **scores}.values():
            values = store.iter_select(f"select {column} from rollouts{join} order by id")
            rows.write(b"[")
            for n, (value,) in enumerate(chain.from_iterable(values)):
                rows.write((b"," if n else b"") + encode_json(value))
            rows.write(b"],")
        for answer, target in _answers_and_targets(store):
            answers.write(encode_json(answer) + b",")
            targets.write(encode_json(target) + b",")
        for part, end in ((answers, b","), (targets, b"]}")):
            rows.write(b"[")
            part.seek(0, 2)
            part.truncate(max(part.tell() - 1, 0))
            part.seek(0)
            shutil.copyfileobj(part, rows)
            rows.write(b"]")
            rows.write(end)


def _answers_and_targets(store: RunReader) -> Iterator[tuple[str | None, str | None]]:
    for some in store.iter_select("select id from rollouts order by id"):
        for first in range(0, len(some), 500):
            ids = [id for (id,) in some[first : first + 500]]
            found = load_previews(store, ids)
            for id in ids:
                yield answer_and_target(found.get(id))


def _rollouts(store: RunReader, place: RunLocation, folder: Path, *, viewers: Sequence[Viewer]) -> Iterator[str]:
    """Write one file per rollout; yields the error of each record, or an empty text."""
    settings = settings_of(place.folder, EVALUATION_RECIPE)
    tokenizer = tokenizer_file(place.folder, settings_of(place.folder))
    folder.mkdir(parents=True)
    for some in store.iter_select("select id, env from rollouts order by id"):
        for id, env in some:
            try:
                record = whole(store, id, settings, viewers=viewers, max_chars=MAX_EXPORT_CHARS)
                _write_json(folder / f"{id}.json", record)
                shown = ShownRollout(rollout=store.get(id), id=id, env=env, folder=place.folder, store=place.store)
                for seat, trajectory in enumerate(shown.rollout.trajectories):
                    for turn, taken in enumerate(trajectory.turns):
                        if taken.tokens is not None:
                            tokens = token_records(trajectory, turn, tokenizer)
                            body = {**tokens, "tokenizer": tokenizer and TOKENIZER_FILE}
                            _write_json(folder / f"{id}.tokens.{seat}.{turn}.json", body)
                for viewer in viewers:
                    if isinstance(viewer, ExportedViewer) and viewer.shows(shown.rollout):
                        _write_json(folder / f"{id}.{viewer.part}.json", viewer.exported(shown))
            except StoreError as error:
                yield one_line(str(error))
            else:
                yield ""


def _write_json(file: Path, body: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encode_json(body))
