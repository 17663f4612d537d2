"""Text of users and models in a terminal, as it is: the only place that makes consoles, tables and texts of rich.

Brackets are no markup, `:smile:` is no picture, and characters that could steer the terminal are escaped. A table keeps
these promises on any console.
"""

from __future__ import annotations

from typing import Any

from rich import console as rich_console
from rich import table as rich_table
from rich.text import Text

from wanderlust.errors import printable


def _visible(text: str) -> str:
    """The text, controls and tabs escaped: rich counts a tab as no column, and cuts the cell off."""
    return printable(text).replace("\t", "\\t")


def plain(content: Any, style: str = "", **options: Any) -> Any:
    """A string as a text that is shown as it is; anything else unchanged. Options are those of `rich.text.Text`."""
    return Text(_visible(content), style, **options) if isinstance(content, str) else content


class Console(rich_console.Console):
    """A console that shows strings as they are; options are those of `rich.console.Console`."""

    def __init__(self, **options: Any):
        super().__init__(**options, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """The string as it is shown."""
        return super().render_str(_visible(text), **options)


class Table(rich_table.Table):
    """A table that shows strings as they are, its title at the left; options are those of `rich.table.Table`."""

    def __init__(self, *headers: Any, title: str | None = None, title_justify: Any = "left", **options: Any):
        super().__init__(*headers, title=plain(title, "table.title"), title_justify=title_justify, **options)

    def add_column(self, header: Any = "", footer: Any = "", **options: Any) -> None:
        """Add a column."""
        super().add_column(plain(header), plain(footer), **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row."""
        super().add_row(*map(plain, cells), **options)
