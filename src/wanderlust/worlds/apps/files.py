"""Files and folders that are in the world and nowhere else."""

from __future__ import annotations

from typing import Any

from wanderlust.tools.errors import ToolError
from wanderlust.worlds.app import action
from wanderlust.worlds.apps.disk import Disk, place_of
from wanderlust.worlds.checks import FREE, PATH


class Files(Disk):
    """Files as an agent uses them. What is opened to be read comes back as text, for there are no handles here."""

    aliases = ("SandboxLocalFileSystem",)

    @action(
        "agent",
        writes=True,
        checks={"path": PATH, "block_size": FREE, "cache_options": FREE, "compression": FREE},
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

    @action("agent", writes=True, checks={"path": PATH, "create_parents": FREE})
    def mkdir(self, path: str, create_parents: bool = True) -> None:
        """Make a folder.

        Args:
            path: The folder.
            create_parents: Whether to make the folders that it is in.
        """
        self._make_folder(path, parents=create_parents)

    @action("agent", writes=True, checks={"path": PATH, "exist_ok": FREE})
    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and the folders that it is in.

        Args:
            path: The folder.
            exist_ok: Whether it may be there already.
        """
        if not (exist_ok and self._is_folder(place_of(path))):
            self._make_folder(path, parents=True)

    @action("agent", writes=True, checks={"path1": PATH, "path2": PATH, "recursive": FREE, "maxdepth": FREE})
    def mv(self, path1: str, path2: str, *, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Move or rename a file, or a folder with all that is in it.

        Args:
            path1: What to move.
            path2: Its new path, or a folder that it goes into.
            recursive: Means nothing here: a folder is moved with all that is in it.
            maxdepth: Means nothing here.
        """
        self._move(path1, path2)

    @action("agent", writes=True, checks={"path": PATH, "maxdepth": FREE})
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
        told = f"[Document truncated. Showing {max_lines} of {len(lines)} lines]"
        return "\n".join([*lines[:max_lines], "", told])


class VirtualFiles(Disk):
    """The same files, with the fewer arguments of ARE's VirtualFileSystem."""

    aliases = ("VirtualFileSystem",)

    @action("agent", writes=True, checks={"path": PATH})
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

    @action("agent", writes=True, checks={"path": PATH})
    def mkdir(self, path: str, create_recursive: bool = True) -> None:
        """Make a folder.

        Args:
            path: The folder.
            create_recursive: Whether to make the folders that it is in.
        """
        self._make_folder(path, parents=create_recursive)

    @action("agent", writes=True, checks={"path1": PATH, "path2": PATH})
    def mv(self, path1: str, path2: str) -> None:
        """Move or rename a file, or a folder with all that is in it.

        Args:
            path1: What to move.
            path2: Its new path, or a folder that it goes into.
        """
        self._move(path1, path2)

    @action("agent", writes=True, checks={"path": PATH})
    def rm(self, path: str, recursive: bool = False) -> None:
        """Remove a file or a folder.

        Args:
            path: What to remove.
            recursive: Whether to remove what is in the folder as well.
        """
        self._remove(path, recursive=recursive)

    @action("agent", writes=True, checks={"path": PATH})
    def rmdir(self, path: str) -> None:
        """Remove an empty folder.

        Args:
            path: The folder.
        """
        if not self._is_folder(self._there(path)):
            raise ToolError(f"{path!r} is no folder")
        self._remove(path, recursive=False)
