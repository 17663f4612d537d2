"""Whether a text affirms what stands at a place of it, denies it, takes it back, or leaves it open.

A clause with a denial affirms nothing; nor does one whose plan was given up ("I wanted to"), or which the rest of its
sentence takes back ("which I turned down"). A number with a bound ("less than 40") is not that number. Not covered:
what another sentence takes back without naming it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from wanderlust.worlds.life.reading import Mention, Text

Place: TypeAlias = tuple[int, int]
HARMLESS = re.compile(
    r"\b(?:no (?:problem|worries|doubt|trouble)|not only|nothing (?:else|more|further|new)|need not|"
    r"no later than)\b"
)
DENIED = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|unable|failed|refused?|anywhere but|"
    r"rather than|instead of|except|unlike|wrong|false|declined)\b|n't\b"
)
_CANCELLED = re.compile(
    r"\b(?:cancel\w*|call(?:s|ed)? off|called it off|sold out|out of stock|unavailable|postponed|fell through|"
    r"dropped)\b"
)
_SUPERSEDED = re.compile(
    r"\b(?:was to be|originally|initially|at first|was (?:planned|meant|going)|had been|previously|proposed first|"
    r"used to be|formerly|moved from)\b"
)
_GIVEN_UP = re.compile(
    r"\b(?:wanted|tried|hoped|attempted|meant|planned|about|intended) to "
    r"(?!ask|know|check|see|find out|let|tell|inform)|\bhad (?:hoped|intended|thought of)\b"
)
"""What one set out to do, in a statement: it says that it came to nothing."""
_WHO = r"(?: (?:i|he|she|it|they|we|you|that|this|there|the shop|the driver|everything))?"
_TAKEN_BACK = re.compile(
    rf"^[^.;!?\n]{{0,80}}?(?:\bbut|\bwhich|\band|\bthough|\bhowever|\buntil|,)(?: then)?{_WHO}(?: \w+){{0,3}}? "
    r"(?:turned (?:it |them |that |this )?down|declined|refused|rejected|forgot(?:ten)?|failed|an error|errors|"
    r"cancelled (?:it|that|this|them|again)|called (?:it|that) off|(?:is |was |were |are )?sold out|out of stock|"
    r"left (?:it |them |those |these )?alone|undid|undone|gave up|changed (?:his|her|my|their) mind|"
    r"took (?:it|that|them) back|withdrew)\b"
    rf"|^[^.;!?\n]{{0,80}}?\b(?:but|though|however) (?:then )?{_WHO.strip()} ?"
    r"(?:did(?:n't| not)|ha(?:s|ve|d)(?:n't| not)|could(?:n't| not)|can(?:'t|not)|was(?:n't| not)|is(?:n't| not))\b"
)
"""The rest of a sentence that takes back what came before it."""
_BOUND_BEFORE = re.compile(
    r"\b(?:(?:less|more|fewer|other|rather|lower|higher|cheaper|dearer) than|all but|at (?:least|most)|over|under|"
    r"above|below|(?<!add )(?<!adds )(?<!comes )(?<!come )up to|almost|nearly|not quite|close to|except(?: for)?|minus|"
    r"beyond|half of|twice|double)(?: the| my)? ?$"
)
_BOUND_AFTER = re.compile(
    r"^ ?(?:\w+ )?(?:more|less|fewer|cheaper|dearer|higher|lower) than\b|^ ?(?:too much|too little)\b"
)
_MONEY_REMAINS = re.compile(r"^ ?(?:is |are )?(?:left|remaining|short)\b")
_BY_PIECE_OR_TIME = re.compile(
    r"\b(?:each|apiece|yearly|annual(?:ly)?|weekly|daily)\b|\b(?:per|an?) (?:year|week|day|night|piece)\b"
)
OPEN = re.compile(
    r"\b(?:if|unless|either|maybe|perhaps|possibly|probably|might|may be|could be|would have|could have|may have|"
    r"would be|would cost|not (?:sure|certain)|one of these|in case|"
    r"i (?:think|guess|suppose|believe))\b|\bor (?:i|he|she|it|they|we|you|that|else|not|nobody)\b"
)
_OPENS_WHAT_FOLLOWS = re.compile(r"\bwhether\b")
_NOT_YET_HERE = re.compile(r"\b(?:have|has)(?:n't| not) (?:yet )?(?:received|got|gotten|come|arrived|seen|heard)\b")
"""In a request, the reason for it."""


def is_denied(text: Text, at: int, *, cancels: bool, asks: bool = False) -> bool:
    clause = HARMLESS.sub(" ", text.clause(at))
    clause = _NOT_YET_HERE.sub(" ", clause) if asks else clause
    return bool(DENIED.search(clause) or _SUPERSEDED.search(clause) or (cancels and _CANCELLED.search(clause)))


def is_open(text: Text, at: int) -> bool:
    before = text.plain[:at].rpartition("\n")[2]
    if text.sentence(at).rstrip().endswith("?"):
        return True
    return OPEN.search(text.sentence(at)) is not None or _OPENS_WHAT_FOLLOWS.search(before) is not None


def _is_choice(text: Text, place: Place) -> bool:
    """Whether "or" stands beside it."""
    before, after = text.plain[: place[0]], text.plain[place[1] :]
    return bool(
        re.match(r"[\w%€ ]{0,12}?,? ?\bor\b", after)
        or re.search(r"\bor (?:(?:on|at|in|for|to|by|the|from) ){0,2}$", before)
    )


def _is_affirmed(text: Text, place: Place, *, asks: bool, cancels: bool = True) -> bool:
    if is_denied(text, place[0], cancels=cancels, asks=asks):
        return False
    if not asks and (_GIVEN_UP.search(text.clause(place[0])) or _is_taken_back(text, place)):
        return False
    return asks or not (is_open(text, place[0]) or _is_choice(text, place))


def affirmed(text: Text, places: Iterable[Place], *, asks: bool, cancels: bool = True) -> bool:
    return any(_is_affirmed(text, at, asks=asks, cancels=cancels) for at in places)


def any_affirmed(text: Text, places: Iterable[Place]) -> bool:
    """Whether another answer is given, or left open."""
    return any(not is_denied(text, at[0], cancels=True) for at in places)


def _is_taken_back(text: Text, place: Place) -> bool:
    return _TAKEN_BACK.search(text.plain[place[1] :]) is not None


def is_bounded(text: Text, one: Mention) -> bool:
    """Whether a number has a bound beside it, or an amount is that of a piece or a time: "less than 40", "40 each"."""
    before, after = text.plain[: one.start], text.plain[one.end :]
    if one.kind != "number":
        return False
    money = one.is_money and (_MONEY_REMAINS.search(after) or _BY_PIECE_OR_TIME.search(text.clause(one.start)))
    return bool(money or _BOUND_BEFORE.search(before) or _BOUND_AFTER.search(after))
