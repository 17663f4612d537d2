"""Whether a text affirms what stands at a place of it, denies it, takes it back, or leaves it open.

A clause with a denial affirms nothing; nor does one whose plan was given up ("I wanted to"), or which the rest of its
sentence takes back ("which I turned down"). A number with a bound ("less than 40") is not that number. Not covered:
what another sentence takes back without naming it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from wanderlust_worlds.verification.reading import MASK, Mention, Text

Place: TypeAlias = tuple[int, int]
HARMLESS = re.compile(
    r"\b(?:no (?:problem|worries|doubt|trouble)|not only|nothing (?:else|more|further|new)|need not|"
    r"no later than)\b"
)
DENIED = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|unable|failed|refused?|anywhere but|"
    r"rather than|instead of|except|unlike|wrong|false|declined|said no|says no)\b|n't\b"
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
    r"took (?:it|that|them) back|withdrew|said no|says no|impossible|"
    r"preferred not|broken|(?:only |still )?have to pay)\b|"
    r"^\)? (?:got|was|were|is|has been|have been) (?:\w+ )?cancelled\b|"
    r"^[^.;!?\n]{0,80}?\buntil [^.;!?\n]{0,30}cancelled\b"
    rf"|^[^.;!?\n]{{0,80}}?\b(?:but|though|however)(?: then)?(?: [\w']+)?{_WHO} "
    r"(?:(?:did|does|do|has|have|had|could|was|is)(?:n't| not)|can(?:'t|not))\b"
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
    r"would (?:be|cost|come to) (?:about |around )?[\d€]|i'd (?:ask|order|tell|send|book|forward|delete|save)|"
    r"not (?:sure|certain)|one of these|in case|i (?:think|guess|suppose|believe))\b|"
    r"\bor (?:i|he|she|it|they|we|you|that|else|not|nobody)\b"
)
_LICENSED = re.compile(
    r"\b(?:not (?:counted|included)|everything else(?: is still there)?|no other|best (?:regards|wishes)|not only|"
    r"as soon as|every one of|"
    r"no (?:problem|worries|doubt|trouble)|no later than|all of (?:which|them)|that would be|"
    r"(?:i'd|would) (?:like|love) to|"
    r"i'd (?:suggest|go)|want(?:ed|s)? (?:to let|me to)|(?:if you have )?(?:any )?questions|"
    r"keep (?:in mind|you posted)|"
    r"(?:others|rest) (?:are|were|is|was|have been|has been) kept)\b"
)
_NOT_PLAIN = re.compile(
    r"\b(?:but|however|although|though|except|despite|until|unless|instead of|rather than|of which|of whom|some of|"
    r"half of|part of|one of|any of|few of|most of|out of \w+|largest|smallest|biggest|dearest|priciest|highest|"
    r"greatest|longest|shortest|second|third|second-\w+|average|on average|kept|keep|refrained|decided against|later|"
    r"too (?:much|many|expensive|late|few)|tomorrow|soon|would|could|should|shall|might|must|ought|want(?:s|ed)?|"
    r"supposed?|allegedly|rumou?r\w*|pretend\w*|imagin\w*|hopefully|next time|ignore|disregard|was wrong|mistake\w*|"
    r"estimate\w*|approximately|roughly|about half|met|were meeting|impossible|missing|(?:is|are|was) broken|owe[sd]?|"
    r"less|fewer|"
    r"(?:\w+er|rather|other) than|still there|(?:is|are) off|taken|i leave|leaves|hated?|disliked?|deposit|unknown|"
    r"single|everybody is to|back from|got [^.;]{0,20} back)\b|"
    r"\bsaved? (?:you )?(?:€|\d[\d.,]* ?(?:eur|€))"
)
"""What says more than values do, or takes something from them."""
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
    """Words within values and names, as in The Broken Bicycle, take nothing back."""
    pairs = zip(text.plain, text.masked, strict=True)
    said = "".join("x" if mask == MASK and letter.isalnum() else letter for letter, mask in pairs)
    return _TAKEN_BACK.search(said[place[1] :]) is not None


def is_bounded(text: Text, one: Mention) -> bool:
    """Whether a number has a bound beside it, or an amount is that of a piece or a time: "less than 40", "40 each"."""
    before, after = text.plain[: one.start], text.plain[one.end :]
    if one.kind != "number":
        return False
    money = one.is_money and (_MONEY_REMAINS.search(after) or _BY_PIECE_OR_TIME.search(text.clause(one.start)))
    return bool(money or _BOUND_BEFORE.search(before) or _BOUND_AFTER.search(after))


def is_plain(text: Text, allowed: Iterable[str] = ()) -> bool:
    """Whether no clause denies, contrasts, compares, defers or leaves open; words in `allowed` are fine."""
    rest = _LICENSED.sub(" ", text.plain)
    for word in allowed:
        rest = rest.replace(word, " ")
    return not (DENIED.search(rest) or _NOT_PLAIN.search(rest) or OPEN.search(rest) or _CANCELLED.search(rest))
