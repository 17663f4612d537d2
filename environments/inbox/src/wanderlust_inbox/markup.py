"""HTML mails as text, in time linear in their length whatever they hold.

The standard library's `html.parser` takes a minute for 100 kB of `<a <a <a`, so tags are found by plain searching.
"""

from __future__ import annotations

import re
from html import unescape

MAX_TAG_CHARS = 4_000
"""Characters of a tag in which its attributes are looked for."""
MAX_QUOTE_DEPTH = 8
_NAME = re.compile(r"/?[A-Za-z][A-Za-z0-9:-]{0,30}")
_SPACE = re.compile(r"[ \t\r\n\f\v\xa0]+")
_HIDDEN = re.compile(
    r"(?i)display\s{0,5}:\s{0,5}none|visibility\s{0,5}:\s{0,5}hidden|font-size\s{0,5}:\s{0,5}0(?![.\d])"
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DROPPED = _names("script style head title template noscript object svg math select textarea iframe video audio")
_BLOCKS = _names(
    "address article aside blockquote body center dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr "
    "html li main nav ol p pre section table tbody tfoot thead tr ul"
)
_PARAGRAPHS = _names("p h1 h2 h3 h4 h5 h6 ul ol table blockquote pre")
_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_LINK_SCHEMES = ("http://", "https://", "mailto:", "tel:")


def html_text(html: str) -> str:
    """The text that a reader sees: links as `text (address)`, quoted mails with `>` before each line.

    Scripts, styles and hidden elements are left out.
    """
    page = _Page()
    at, end = 0, len(html)
    while at < end:
        begin = html.find("<", at)
        if begin < 0:
            page.text(html[at:])
            break
        page.text(html[at:begin])
        at = _markup(html, begin, page)
    return page.finished()


def _markup(html: str, begin: int, page: _Page) -> int:
    """Take what stands at a `<`; returns the place behind it."""
    if html.startswith("<!--", begin):
        return _behind(html, "-->", begin + 4)
    if html.startswith(("<!", "<?"), begin):
        return _behind(html, ">", begin + 2)
    named = _NAME.match(html, begin + 1)
    if named is None:
        page.text("<")
        return begin + 1
    end = _tag_end(html, named.end())
    name, tag = named[0].lower(), html[begin : min(end, begin + MAX_TAG_CHARS)]
    if name.startswith("/"):
        page.close(name[1:])
    elif name in ("script", "style"):
        closing = re.compile(rf"(?i)</{name}").search(html, end)
        return _behind(html, ">", closing.end()) if closing else len(html)
    else:
        page.open(name, tag)
    return end


def _behind(html: str, mark: str, start: int) -> int:
    """The place behind the next mark; the end of the text where there is none."""
    found = html.find(mark, start)
    return len(html) if found < 0 else found + len(mark)


def _tag_end(html: str, start: int) -> int:
    """The place behind a tag; a `>` between quotes does not end it, within some characters."""
    end = _behind(html, ">", start)
    for _ in range(4):
        tag = html[start:end]
        if len(tag) > MAX_TAG_CHARS or (tag.count('"') % 2 == 0 and ("='" not in tag or tag.count("'") % 2 == 0)):
            break
        longer = _behind(html, ">", end)
        if longer - start > MAX_TAG_CHARS:
            break
        end = longer
    return end


def _attribute(tag: str, name: str) -> str:
    """The value of an attribute; empty where there is none."""
    found = re.compile(rf"""(?i)\s{name}\s{{0,5}}=\s{{0,5}}(["']?)""").search(tag)
    if found is None:
        return ""
    quote, start = found[1], found.end()
    end = tag.find(quote, start) if quote else next((n for n in range(start, len(tag)) if tag[n] in " \t\r\n>"), -1)
    return unescape(tag[start:] if end < 0 else tag[start:end]).strip()


class _Page:
    """Text while it is read: finished lines, the pieces of the one that is being written, what is open."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []
        self._line: list[str] = []
        self._empty = True
        self._depth = self._pre = 0
        self._hidden, self._hidden_depth = "", 0
        self._link: tuple[str, int, int] | None = None

    def text(self, text: str) -> None:
        if not text or self._hidden:
            return
        plain = unescape(text)
        if self._pre:
            for number, line in enumerate(plain.split("\n")):
                if number:
                    self._break()
                self._add(line)
        else:
            self._add(_SPACE.sub(" ", plain))

    def open(self, name: str, tag: str) -> None:
        if self._hidden:
            self._hidden_depth += name == self._hidden and name not in _VOID
            return
        if name == "br":
            self._break()
        if name in _VOID and name != "hr":
            self._add(_attribute(tag, "alt") if name == "img" else "")
            return
        if name in _DROPPED or _HIDDEN.search(_attribute(tag, "style")):
            self._hidden, self._hidden_depth = name, 1
            return
        self._block(name)
        self._depth = min(self._depth + (name == "blockquote"), MAX_QUOTE_DEPTH)
        self._pre += name == "pre"
        if name == "li":
            self._add("- ")
        elif name in ("td", "th") and not self._empty:
            self._add(" | ")
        elif name == "a":
            self._link = _attribute(tag, "href"), len(self._lines), len(self._line)

    def close(self, name: str) -> None:
        if self._hidden:
            self._hidden_depth -= name == self._hidden
            self._hidden = self._hidden if self._hidden_depth else ""
            return
        if name == "a" and self._link is not None:
            self._end_link(*self._link)
            self._link = None
        self._block(name)
        self._depth = max(0, self._depth - (name == "blockquote"))
        self._pre = max(0, self._pre - (name == "pre"))

    def finished(self) -> str:
        self._break()
        later = [*(depth for depth, _ in self._lines[1:]), 0]
        lines = [
            f"{'>' * depth} {text}".strip()
            for (depth, text), after in zip(self._lines, later, strict=True)
            if text or depth <= after
        ]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def _end_link(self, address: str, line: int, start: int) -> None:
        shown = "".join(self._line[start:]) if line == len(self._lines) else ""
        bare = address.removeprefix("mailto:")
        if address.lower().startswith(_LINK_SCHEMES) and bare.rstrip("/") not in shown:
            self._add(f" ({_SPACE.sub('', bare)})")

    def _add(self, text: str) -> None:
        kept = text.lstrip(" ") if self._empty and not self._pre else text
        if kept:
            self._line.append(kept)
            self._empty = self._empty and not kept.strip()

    def _break(self) -> None:
        self._lines.append((self._depth, "".join(self._line).strip()))
        self._line, self._empty = [], True

    def _block(self, name: str) -> None:
        """End the line before and after a block; paragraphs have an empty one between them."""
        if name not in _BLOCKS:
            return
        if not self._empty:
            self._break()
        if name in _PARAGRAPHS and self._lines and self._lines[-1][1]:
            self._break()
