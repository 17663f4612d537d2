r"""The final answer of a text, and a form of it in which equal answers are equal: the one reader of all that compare.

What a text marks counts before its prose: the last `\boxed{...}`, tag or `####`; else the last words like `the answer
is`; else the last mathematics or number. Nothing is computed: `2x + 2` and `2(x + 1)` are two answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from wanderlust.rubrics.parsing import MAX_ANSWER_CHARS, after_reasoning, last_boxed, parse_number

MAX_PROSE_CHARS = 4_000
"""Last characters of a text that are searched for mathematics and numbers where nothing is marked."""
MAX_FORM_CHARS = 1_000
"""Characters of an answer that are compared."""
MAX_WORDS = 8
"""Words of an announced answer in prose; of a longer one the last number counts."""

TAGS = ("answer", "final_answer", "final", "guess", "move", "title", "group", "action")
"""Names of the tags in which an answer may stand."""
_ANNOUNCED = re.compile(
    r"\b(?:answers?|(?:correct|right|best) (?:option|choice))(?:[*_]{2})?(?: (?:to|of|for|in|here)\b[^.:\n]{0,100}?)?"
    r"\s*(?:[*_]{2})?(?::|=|\b(?:is|are|was|must be|should be|would be|will be|comes? to|becomes)\b:?)(?:[*_]{2})?\s*"
    r"|^(?:A:|[ \t]*####(?![ \t]*[a-zA-Z]{3}))\s*|\bfinal answer\W*\n\s*",
    re.IGNORECASE | re.MULTILINE,
)
_FILLER = re.compile(
    r"(?:[\s*_`\"'\u201c\u201d:]|(?:approximately|about|roughly|equal to|simply|just|exactly|therefore|thus|indeed|"
    r"still|clearly|obviously|actually|probably|only|going to be|found to be|option|choice|letter)\b)+",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:not|unclear|unknown|expected|supposed|given|based|obtained|calculated|(?:in)?correct|wrong)\b",
    re.IGNORECASE,
)
_MATH = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$(?=\S)(.+?)(?<=[^\s\\])\$(?!\d)", re.DOTALL)
_PROSE = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{3,}")
_AND = re.compile(r"\s*(?:,\s*(?:and|or)?|\band\b|\bor\b)\s*")
_VALUE = (
    r"[-+\u2212]?\s?(?:\\?[$\u20ac\u00a3]\s?[-\u2212]?)?"
    r"(?:[0-9]+\s[0-9]+/[0-9]+|(?:[0-9]{1,3}(?:(?:\{,\}|[, ])[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
    r"(?:[eE][+-]?[0-9]+)?(?:\s?/\s?[0-9]+)?(?::[0-9]+)*|\.[0-9]+)(?:\s?\\?%)?"
)
_END = r"(?![\d^])(?!\.\d|[^\W\dgmshlL]\b|(?:st|nd|rd|th)\b)"
"""Behind a number: no further digit, no variable and no ordinal; a unit may be."""
_NUMBER = re.compile(rf"(?<![\w.,^{{]){_VALUE}{_END}")
_RESULT = re.compile(rf"=\s*({_VALUE}){_END}")
_NUMBERS = re.compile(
    rf"{_VALUE}(?:(?:,\s*(?:and\s|or\s)?|\s(?:and|or)\s)\s*{_VALUE})*"
    r"(?![\w^\\])(?!\.\d)(?!\s*[-+*/=^\u00d7]\s*[\w(\\])"
)
_COMPOUND = re.compile(rf"{_VALUE}\s*[a-z]+,?\s(?:and\s)?{_VALUE}\s*[a-z]+$", re.IGNORECASE)
_CHOICE = re.compile(r"\(([A-J])\)|([A-J])(?=[).:]|\s*$)")
_CLAUSE = re.compile(
    r"[.!?](?=[\s*_\"')\]]|$)|\n|;|\s\(|\s[\u2014\u2013-]+\s|,\s(?!(?:and\s|or\s)?[-$\\(\d])|"
    r"\s(?:because|since|so|but|wait|hmm+|which|where|when|if|then|let|therefore|however|ok|okay|actually|now|as)\b",
    re.IGNORECASE,
)


def final_answer(text: str) -> str | None:
    """The answer that the text ends with, as it is written there; None where it has none. Reasoning is not searched."""
    marked = marked_answer(text)
    if marked is not None:
        return marked
    text = after_reasoning(text[-MAX_PROSE_CHARS:])
    last = text.rstrip().rpartition("\n")[2]
    bold = [value[0] for one in re.findall(r"\*\*(.+?)\*\*", last) if (value := _NUMBERS.match(one))]
    found = bold or [*_mathematics_in(last)][-1:] or [*_mathematics_in(text)][-1:]
    return found[-1] if found else None


def marked_answer(text: str) -> str | None:
    """The same, where the text marks or announces it; None where only its prose tells."""
    text = after_reasoning(text[-MAX_ANSWER_CHARS:])
    if found := last_boxed(text) or _tagged(text):
        return found
    for announced in reversed([*_ANNOUNCED.finditer(text)]):
        value = _announced_value(text[announced.end() :][:300])
        if value is not None:
            return value
    return None


def extract_answer(text: str) -> str:
    """The final answer in its comparable form; empty where there is none."""
    answer = final_answer(text)
    return "" if answer is None else comparable(answer)


def stated_answer(text: str) -> str:
    """The answer that a text marks or announces, else its last line; empty where there is no text."""
    text, marked = after_reasoning(text), marked_answer(text)
    return " ".join((text.rstrip().rpartition("\n")[2] if marked is None else marked).split()).rstrip(".")


def _tagged(text: str) -> str:
    """What stands in the tag that is closed last."""
    end, name = max((text.rfind(f"</{name}>"), name) for name in TAGS)
    start = text.rfind(f"<{name}>", 0, max(end, 0))
    return text[start + len(name) + 2 : end].strip() if start >= 0 else ""


def _announced_value(text: str) -> str | None:
    """The answer at the beginning of what follows `the answer is`."""
    filler = _FILLER.match(text)
    text = text[filler.end() :] if filler else text
    if not text or _DENIED.match(text):
        return None
    found = _mathematics(text)
    if found is not None:
        return found
    end = _CLAUSE.search(text, 1)
    clause = (text[: end.start()] if end else text).strip(" *_`\"'")
    for pattern in (_CHOICE, _COMPOUND, _NUMBERS):
        match = pattern.match(clause)
        if match is not None:
            return next((group for group in match.groups() if group), match[0])
    numbers, words = _NUMBER.findall(clause), clause.split()
    if _PROSE.search(clause) and numbers and len(words) > 2:
        return str(numbers[-1])
    return clause if clause and len(words) <= MAX_WORDS else None


def _mathematics(text: str) -> str | None:
    """The mathematics that the text begins with, and more of it behind `and`."""
    found, at = list[str](), 0
    while (match := _MATH.match(text, at)) is not None and (inner := _inner(match)):
        found.append(inner)
        joint = _AND.match(text, match.end())
        at = joint.end() if joint is not None else len(text)
    return ", ".join(found) or None


def _inner(match: re.Match[str]) -> str:
    """What stands between the signs of mathematics; empty where they are dollars before amounts."""
    inner = next(group for group in match.groups() if group)
    return "" if match[4] and _PROSE.search(inner) else inner.strip().rstrip(".")


def _mathematics_in(text: str) -> list[str]:
    """Mathematics and results in the order in which they end; numbers alone where there are neither."""
    found = [(match.end(), match[1]) for match in _RESULT.finditer(text)]
    found += [
        (match.end(), one) for match in _MATH.finditer(text) if re.search(r"[\d\\]|^[A-J]$", one := _inner(match))
    ]
    return [one for _, one in sorted(found)] or _NUMBER.findall(text)


_STYLES = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname)\s*\{([^{}]*)\}")
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle|[bB]igg?)(?![a-zA-Z])|\\[()\[\]$]|\$|\u20ac|\u00a3|\\!")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\u00b0|\\?%)")
_ARGUMENT = r"\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\w))"
_FRACTION = re.compile(rf"(\d?)\s*\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}")
_NAMED = re.compile(
    r"[a-zA-Z][\w' ]{0,30}(?:\([a-z]\))?\s*(?:=|\u2248|\\approx)\s*([^=]+)|[-\d\s+*/().,^{}=]+=\s*([-\d.,/]+)"
)
_UNIT = re.compile(
    r"(?:(?:\s+|\s*-\s*)(?:[a-z]{2}[a-z \-]*?|[gmshl])|"
    r"\s*(?:[kcmn]?m|[km]?g|m?l|km/h|m/s|mph|hours?|minutes?|feet|ft|inches|dollars|cents))"
    r"(?:\s*/\s*[a-z]+)?(?:\^\s*\{?\d\}?|[\u00b2\u00b3])?",
    re.IGNORECASE,
)
_SIGNS = {0x2212: "-", 0xD7: "*", 0xB7: "*", 0x2264: "<=", 0x2265: ">=", 0x221E: "\\infty ", 0x3C0: "\\pi "}
"""Minus, times, centred dot, the two bounds, infinity and pi."""
_COMMANDS = {"cdot": "*", "times": "*", "le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "quad": " ", "qquad": " "}


def comparable(answer: str) -> str:
    """The answer without layout, units, case and names of variables; numbers as integers or reduced fractions."""
    text = answer[:MAX_FORM_CHARS].translate(_SIGNS)
    text = re.sub(r"(?<=\d)(?:\{,\}|\\[,!]|\\? )\s*(?=\d{3}(?!\d))", "", text)
    text = _DEGREES.sub("", _LAYOUT.sub("", _STYLES.sub(r" \1 ", text)))
    text = re.sub(r"\\[,;: ]|~", " ", text)
    while (match := _FRACTION.search(text)) is not None:
        above, below = (part.strip() for part in match.groups()[1:] if part is not None)
        above, below = (part if re.fullmatch(r"-?\\?\w+", part) else f"({part})" for part in (above, below))
        space = " " if match[1] else ""
        text = f"{text[: match.start()]}{match[1]}{space}{above}/{below}{text[match.end() :]}"
    text = re.sub(r"\s*\\([a-zA-Z]+)\s*", lambda command: _COMMANDS.get(command[1], command[1]), text)
    text = re.sub(r"\\([{}])", r"\1", text).strip(" \t\n*_`\"'").rstrip(".,;:")
    parts = [text] if _COMPOUND.fullmatch(text) else [part.strip() for part in _top_level(text)]
    if len({named[0].partition("=")[0].strip() for part in parts if (named := _NAMED.fullmatch(part))}) < 2:
        parts = [(named[1] or named[2]).strip() if (named := _NAMED.fullmatch(part)) else part for part in parts]
    return ",".join(map(_form, parts))


def _top_level(text: str) -> Iterator[str]:
    """The parts of an answer between commas, `and` and `or` that stand in no brackets; thousands are none."""
    depth, start = 0, 0
    for match in re.finditer(r"[(\[{]|[)\]}]|,(?!\d{3}(?:\D|$))|,(?=\s)|\s(?:or|and)\s", text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif not depth and re.search(r"\d", text):
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _form(text: str) -> str:
    """The form of a single value: the letter of a choice, a number, words, or an expression without spaces."""
    if (choice := re.fullmatch(r"\(([A-J])\).*", text)) is not None:
        return choice[1].lower()
    value = re.match(_VALUE, text)
    if value is not None and ":" not in value[0] and (value[0] == text or _UNIT.fullmatch(text, value.end())):
        text = value[0].strip()
    if (mixed := re.fullmatch(r"([-+]?)\s?(\d+)\s(\d+)/(\d+)", text)) is not None and int(mixed[4]):
        return str(int(f"{mixed[1]}1") * (int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))))
    if (number := parse_number(re.sub(r"^([-+]?)\s+", r"\1", text))) is not None:
        return str(number)
    if not re.search(r"[\d\\^_=+*/<>|{}()\[\]]", text):
        return " ".join(re.findall(r"\w+", text.lower()))
    text = re.sub(r"\{(\w+)\}", r"\1", text.lower())
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split()))
