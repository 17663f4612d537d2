"""Files and folders in the memory of a world.

`FileStorage` is what other apps use for attachments, `Disk` the tree and the actions that all file apps share. Nothing
here reads or writes the machine's own files.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from posixpath import basename, dirname, join, normpath
from typing import Any, Literal, Self

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.argument_checks import FREE_CHECK, PATH_CHECK
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord


class FileStorage(App):
    """An app that keeps files. Others find it by `world.find(FileStorage)`."""

    def read_bytes(self, path: str) -> bytes:
        """The content of a file. Raises ToolError when there is none."""
        raise NotImplementedError

    def write_bytes(self, path: str, content: bytes) -> None:
        """Make or replace a file, and the folders that it is in."""
        raise NotImplementedError


HOME_FOLDER = "home/userhome"
MAX_FILE_BYTES = 10_000_000
"""Bytes of the longest file."""
OPEN_MODES = frozenset("rwaxbt+")


def files_of(app: App) -> FileStorage:
    """The app for files in an app's world. Raises ToolError when there is none."""
    files = app.world.find(FileStorage)
    if files is None:
        raise ToolError("there is no app for files")
    return files


class Entry(FrozenRecord):
    """A file or a folder."""

    type: Literal["file", "directory"]
    content: bytes | None = None
    """None for a folder, and for a file of which only name and size are known."""
    size: int = 0


FOLDER_ENTRY = Entry(type="directory")


class Disk(FileStorage):
    """Paths begin at the top folder, with or without `/`; `~` is the user's home. Nothing leads out.

    Scenarios of ARE name files without their content. Reading such a file says so, attaching it attaches an empty one.
    """

    entries: CowDict[Entry] = CowDict()
    """By path without the first `/`; the top folder is not in it."""
    tmpdir: str = "/"
    """A folder that ARE wants to be told of."""

    def read_bytes(self, path: str) -> bytes:
        """The content of a file; empty when only its name is known. Raises ToolError when there is no such file."""
        return self._file(path).content or b""

    def write_bytes(self, path: str, content: bytes) -> None:
        """Make or replace a file, and the folders that it is in. Raises ToolError when that cannot be."""
        place = normalize_path(path)
        if not place or self._is_folder(place):
            raise ToolError(f"{path!r} is a folder")
        if len(content) > MAX_FILE_BYTES:
            raise ToolError(f"a file may have {MAX_FILE_BYTES:,} bytes")
        self._make_folders(dirname(place))
        self.entries[place] = Entry(type="file", content=content, size=len(content))

    @action("agent")
    def exists(self, path: str) -> bool:
        """Tell whether there is such a file or folder.

        Args:
            path: The path.
        """
        place = normalize_path(path)
        return not place or place in self.entries

    @action("agent")
    def info(self, path: str) -> dict[str, Any]:
        """Tell name, size in bytes and type (file or directory) of a file or folder.

        Args:
            path: The path.
        """
        return self._entry_info(self._existing_path(path))

    @action("agent")
    def ls(self, path: str = ".", detail: bool = False) -> list[str | dict[str, Any]]:
        """List what is in a folder.

        Args:
            path: The folder; the top one unless given.
            detail: Whether to tell size and type of each.
        """
        place = self._existing_path(path)
        paths = [one for one in self.entries if dirname(one) == place] if self._is_folder(place) else [place]
        return [self._entry_info(one) if detail else f"/{one}" for one in paths]

    @action("agent")
    def tree(self, path: str = ".") -> str:
        """Draw a folder with all that is in it.

        Args:
            path: The folder; the top one unless given.
        """
        place = self._existing_path(path)
        children: dict[str, list[str]] = {}
        for one in sorted(self.entries):
            children.setdefault(dirname(one), []).append(one)
        lines, top = [basename(place) or "/"], children.get(place, [])
        stack = [(0, iter(top), len(top))]  # not a recursion, because folders may be deep
        while stack:
            depth, rest, left = stack.pop()
            child = next(rest, None)
            if child is None:
                continue
            stack.append((depth, rest, left - 1))
            lines.append(f"{'    ' * depth}{'└──' if left == 1 else '├──'} {basename(child)}")
            below = children.get(child, [])
            stack.append((depth + 1, iter(below), len(below)))
        return "\n".join(lines)

    # How it is done

    def _is_folder(self, place: str) -> bool:
        return not place or (place in self.entries and self.entries[place].type == "directory")

    def _existing_path(self, path: str) -> str:
        place = normalize_path(path)
        if place and place not in self.entries:
            raise ToolError(f"there is no {path!r}")
        return place

    def _file(self, path: str) -> Entry:
        place = self._existing_path(path)
        if self._is_folder(place):
            raise ToolError(f"{path!r} is a folder")
        return self.entries[place]

    def _text(self, path: str) -> str:
        entry = self._file(path)
        if entry.content is None:
            return f"[the content of {path}, {entry.size} bytes, is not part of this world]"
        return entry.content.decode(errors="replace")

    def _below(self, place: str) -> list[str]:
        return [one for one in self.entries if one == place or one.startswith(f"{place}/")]

    def _entry_info(self, place: str) -> dict[str, Any]:
        entry = self.entries[place] if place else FOLDER_ENTRY
        return {"name": f"/{place}", "size": entry.size, "type": entry.type}

    def _make_folders(self, place: str) -> None:
        above = place
        while above:
            if above in self.entries and not self._is_folder(above):
                raise ToolError(f"/{above} is a file")
            above = dirname(above)
        for depth in range(1, len(place.split("/")) + 1 if place else 0):
            self.entries.setdefault("/".join(place.split("/")[:depth]), FOLDER_ENTRY)

    def _make_folder(self, path: str, *, parents: bool) -> None:
        place = normalize_path(path)
        if not place or place in self.entries:
            raise ToolError(f"there is a {path!r} already")
        if not parents and not self._is_folder(dirname(place)):
            raise ToolError(f"there is no folder {dirname(place)!r}")
        self._make_folders(place)

    def _move(self, path1: str, path2: str) -> None:
        source, target = self._existing_path(path1), normalize_path(path2)
        if not source:
            raise ToolError("the top folder stays where it is")
        if self._is_folder(target):
            target = join(target, basename(source))
        if target == source:
            return
        if f"{target}/".startswith(f"{source}/"):
            raise ToolError("a folder cannot be moved into itself")
        if self._is_folder(source) and target in self.entries:
            raise ToolError(f"there is a '/{target}' already")
        self._make_folders(dirname(target))
        for place in self._below(source):
            self.entries[target + place[len(source) :]] = self.entries.pop(place)

    def _remove(self, path: str, *, recursive: bool) -> None:
        place = self._existing_path(path)
        below = self._below(place) if place else list(self.entries)
        if not recursive and (not place or (self._is_folder(place) and len(below) > 1)):
            raise ToolError(f"{path!r} is a folder and not empty: give recursive=true")
        for one in below:
            del self.entries[one]

    def _open(self, path: str, mode: str) -> str:
        if not mode or set(mode) - OPEN_MODES or sum(mode.count(one) for one in "rwax") != 1:
            raise ToolError(f"there is no mode {mode!r}: r, w, a or x, and b after it for bytes")
        place = normalize_path(path)
        if "r" in mode:
            return self._text(path)
        if "x" in mode and place in self.entries:
            raise ToolError(f"there is a {path!r} already")
        if "a" not in mode or place not in self.entries:
            self.write_bytes(path, b"")
        return f"opened {path} with mode {mode}"

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: a tree of names. Size and content (in base64) are read where a node has them."""
        entries: dict[str, Entry] = {}
        stack = [(child, "") for child in reversed(state.get("files", {}).get("children") or ())]
        while stack:
            child, above = stack.pop()
            place = normalize_path(join(above, child["name"]))
            if child["type"] == "directory":
                entries[place] = FOLDER_ENTRY
                stack += [(one, place) for one in reversed(child.get("children") or ())]
            else:
                content = base64.b64decode(child["content"]) if child.get("content") is not None else None
                entries[place] = Entry(type="file", content=content, size=child.get("size", len(content or b"")))
        return cls(name, entries=CowDict(entries), tmpdir=state.get("tmpdir") or "/")

    def to_are(self) -> dict[str, Any]:
        """A tree of names, with sizes and contents, which ARE leaves."""
        top: dict[str, Any] = {"name": "", "type": "directory", "children": []}
        nodes = {"": top}
        for place, entry in sorted(self.entries.rows().items()):
            node: dict[str, Any] = {"name": basename(place), "type": entry.type}
            if entry.type == "directory":
                node["children"] = []
            else:
                node["size"] = entry.size
                if entry.content is not None:
                    node["content"] = base64.b64encode(entry.content).decode()
            nodes[place] = node
            nodes[dirname(place)]["children"].append(node)
        return {"files": top, "tmpdir": self.tmpdir}


def normalize_path(path: str) -> str:
    """The key of a path. Raises ToolError for one that leads out."""
    if path == "~" or path.startswith("~/"):
        path = f"{HOME_FOLDER}/{path[2:]}"
    place = normpath(path.lstrip("/") or ".")
    if place == ".." or place.startswith("../") or "\0" in place:
        raise ToolError(f"{path!r} leads out of these files")
    return "" if place == "." else place


class Files(Disk):
    """Files as an agent uses them. What is opened to be read comes back as text, for there are no handles here."""

    aliases = ("SandboxLocalFileSystem",)

    @action(
        "agent",
        writes=True,
        checks={"path": PATH_CHECK, "block_size": FREE_CHECK, "cache_options": FREE_CHECK, "compression": FREE_CHECK},
    )
    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
    ) -> str:
        """Open a file. To read gives its text; to write (w, x) makes an empty file; to append (a) makes it if needed.

        Args:
            path: The file.
            mode: r, w, a or x, and b after it for bytes.
            block_size: Means nothing here.
            cache_options: Means nothing here.
            compression: Means nothing here.
        """
        return self._open(path, mode)

    @action("agent")
    def cat(self, path: str, recursive: bool = False, on_error: str = "raise") -> str:
        """Read a file as text.

        Args:
            path: The file.
            recursive: Means nothing here: folders cannot be read.
            on_error: raise for an error when it cannot be read; omit for an empty text.
        """
        try:
            return self._text(path)
        except ToolError:
            if on_error == "omit":
                return ""
            raise

    @action("agent", writes=True, checks={"path": PATH_CHECK, "create_parents": FREE_CHECK})
    def mkdir(self, path: str, create_parents: bool = True) -> None:
        """Make a folder.

        Args:
            path: The folder.
            create_parents: Whether to make the folders that it is in.
        """
        self._make_folder(path, parents=create_parents)

    @action("agent", writes=True, checks={"path": PATH_CHECK, "exist_ok": FREE_CHECK})
    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and the folders that it is in.

        Args:
            path: The folder.
            exist_ok: Whether it may be there already.
        """
        if not (exist_ok and self._is_folder(normalize_path(path))):
            self._make_folder(path, parents=True)

    @action(
        "agent",
        writes=True,
        checks={"path1": PATH_CHECK, "path2": PATH_CHECK, "recursive": FREE_CHECK, "maxdepth": FREE_CHECK},
    )
    def mv(self, path1: str, path2: str, *, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Move or rename a file, or a folder with all that is in it.

        Args:
            path1: What to move.
            path2: Its new path, or a folder that it goes into.
            recursive: Means nothing here: a folder is moved with all that is in it.
            maxdepth: Means nothing here.
        """
        self._move(path1, path2)

    @action("agent", writes=True, checks={"path": PATH_CHECK, "maxdepth": FREE_CHECK})
    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove a file or a folder.

        Args:
            path: What to remove.
            recursive: Whether to remove what is in the folder as well.
            maxdepth: Means nothing here.
        """
        self._remove(path, recursive=recursive)

    @action("agent")
    def display(self, path: str) -> bool:
        """Show a file to the user; you do not see it. Tells whether there is such a file.

        Args:
            path: The file.
        """
        return self.exists(path)

    @action("agent")
    def read_document(self, file_path: str, max_lines: int | None = 20) -> str:
        """Read a document as text. Documents of other kinds than text cannot be read here.

        Args:
            file_path: The document.
            max_lines: How many lines to read at most; null for all.
        """
        entry = self._file(file_path)
        if entry.content is not None and b"\0" in entry.content:
            raise ToolError(f"{file_path!r} is no text: {entry.size} bytes")
        lines = self._text(file_path).split("\n")
        if max_lines is None or max_lines <= 0 or len(lines) <= max_lines:
            return "\n".join(lines)
        notice = f"[Document truncated. Showing {max_lines} of {len(lines)} lines]"
        return "\n".join([*lines[:max_lines], "", notice])


class VirtualFiles(Disk):
    """The same files, with the fewer arguments of ARE's VirtualFileSystem."""

    aliases = ("VirtualFileSystem",)

    @action("agent", writes=True, checks={"path": PATH_CHECK})
    def open(self, path: str, mode: str = "rb") -> str:
        """Open a file. To read gives its text; to write (w, x) makes an empty file; to append (a) makes it if needed.

        Args:
            path: The file.
            mode: r, w, a or x, and b after it for bytes.
        """
        return self._open(path, mode)

    @action("agent")
    def cat(self, path: str) -> str:
        """Read a file as text.

        Args:
            path: The file.
        """
        return self._text(path)

    @action("agent", writes=True, checks={"path": PATH_CHECK})
    def mkdir(self, path: str, create_recursive: bool = True) -> None:
        """Make a folder.

        Args:
            path: The folder.
            create_recursive: Whether to make the folders that it is in.
        """
        self._make_folder(path, parents=create_recursive)

    @action("agent", writes=True, checks={"path1": PATH_CHECK, "path2": PATH_CHECK})
    def mv(self, path1: str, path2: str) -> None:
        """Move or rename a file, or a folder with all that is in it.

        Args:
            path1: What to move.
            path2: Its new path, or a folder that it goes into.
        """
        self._move(path1, path2)

    @action("agent", writes=True, checks={"path": PATH_CHECK})
    def rm(self, path: str, recursive: bool = False) -> None:
        """Remove a file or a folder.

        Args:
            path: What to remove.
            recursive: Whether to remove what is in the folder as well.
        """
        self._remove(path, recursive=recursive)

    @action("agent", writes=True, checks={"path": PATH_CHECK})
    def rmdir(self, path: str) -> None:
        """Remove an empty folder.

        Args:
            path: The folder.
        """
        if not self._is_folder(self._existing_path(path)):
            raise ToolError(f"{path!r} is no folder")
        self._remove(path, recursive=False)
