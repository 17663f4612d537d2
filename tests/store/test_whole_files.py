"""A file or folder is the old one or the new one, and no draft stays."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from project_files import module_name, python_files
from wanderlust.errors import StoreError
from wanderlust.store.whole_files import replacing, write_whole


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "report.json"
    write_whole(file, "old ü")
    with replacing(file, durable=True) as draft:
        draft.write_text("new")
        assert file.read_text(encoding="utf-8") == "old ü"
    assert file.read_text() == "new"
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("shared", [False, True])
def test_a_block_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, shared: bool) -> None:
    file = tmp_path / "report.json"
    write_whole(file, b"old")

    def fail() -> None:
        with replacing(file, shared=shared) as draft:
            draft.write_text("ha")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert file.read_text() == "old"
    assert [*tmp_path.iterdir()] == [file]


def test_what_a_killed_process_left_is_no_part_of_the_next_folder(tmp_path: Path) -> None:
    (tmp_path / "model.partial").mkdir()
    (tmp_path / "model.partial" / "junk").write_text("half")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("")
    with replacing(tmp_path / "model") as draft:
        draft.mkdir()
        (draft / "new").write_text("")
    assert [str(one.relative_to(tmp_path)) for one in sorted(tmp_path.rglob("*"))] == ["model", "model/new"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out" / "work").mkdir(parents=True)
    with pytest.raises(StoreError, match="out cannot be written: Is a directory"):
        write_whole(tmp_path / "out", "text")
    assert (tmp_path / "out" / "work").is_dir()
    assert [*tmp_path.iterdir()] == [tmp_path / "out"]


def test_a_private_file_is_private_before_anything_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mails"
    before = os.umask(0)
    try:
        write_whole(file, "for all")
        assert file.stat().st_mode & 0o777 == 0o666
        with replacing(file, mode=0o640) as draft:
            assert draft.stat().st_mode & 0o777 == 0o600
            draft.write_text("for some")
    finally:
        os.umask(before)
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o640, "for some")


def test_two_that_write_a_shared_file_at_once_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "index"
    with replacing(file, shared=True) as first, replacing(file, shared=True) as second:
        first.write_text("first")
        second.write_text("second")
    assert file.read_text() == "first"
    assert [*tmp_path.iterdir()] == [file]


OTHERS = {
    "wanderlust_hub.add": "a folder of code is taken back where the new one cannot take its place",
    "wanderlust_hub.publishing": "a version's folder is new: it must never replace one",
    "wanderlust.training.checkpoint": "a run's folder is new: it must never replace one",
    "wanderlust.training.trainers.fsdp_state": "many processes write one folder, and the old one stays until then",
}
"""Modules that rename files themselves, and why."""


def renames(tree: ast.AST) -> Iterator[ast.AST]:
    """Calls of `rename` and `replace` of paths: `replace` of texts has two arguments, that of values has names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_path = len(node.args) == 1 and not node.keywords
            if node.func.attr in ("rename", "renames") or (
                node.func.attr == "replace" and (of_path or ast.unparse(node.func.value) == "os")
            ):
                yield node


def test_nobody_else_writes_beside_and_renames() -> None:
    texts = {module_name(path): path.read_text(encoding="utf-8") for path in python_files("src")}
    trees = {name: ast.parse(text) for name, text in texts.items() if "replace" in text or "rename" in text}
    assert {name for name, tree in trees.items() if any(renames(tree))} == {*OTHERS, "wanderlust.store.whole_files"}
