"""What apps that keep files offer to others, for attachments."""

from __future__ import annotations

from wanderlust.worlds.app import App


class Keeping(App):
    """An app that keeps files. Others find it by `world.find(Keeping)`."""

    def read_bytes(self, path: str) -> bytes:
        """The content of a file. Raises ToolError when there is none."""
        raise NotImplementedError

    def write_bytes(self, path: str, content: bytes) -> None:
        """Make or replace a file, and the folders that it is in."""
        raise NotImplementedError
