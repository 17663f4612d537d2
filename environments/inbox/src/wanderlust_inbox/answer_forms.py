"""Usual forms of an answer: dates and amounts are written in several ways."""

from __future__ import annotations

import re
from datetime import date

from wanderlust_inbox.language import MONTHS

_MONTH = "|".join(MONTHS)
_DATES = (
    re.compile(rf"(?i)(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)? (?P<m>{_MONTH})(?:,? (?P<y>\d{{4}}))?"),
    re.compile(rf"(?i)(?P<m>{_MONTH}) (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<y>\d{{4}}))?"),
    re.compile(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"),
)
_AMOUNT = re.compile(r"(?:[€$£]|[A-Z]{3})? ?(\d{1,3}(?:,\d{3})+|\d+)(\.\d\d)?(?: ?(?:[€$£]|[A-Z]{3}))?")


def answer_forms(answer: str) -> list[str]:
    """An answer, and the other usual forms of it where it is a date or an amount; none where it is empty."""
    if not answer:
        return []
    forms = [answer]
    for pattern in _DATES:
        if found := pattern.fullmatch(answer.strip()):
            forms += _date_forms(found["y"] or "", found["m"], found["d"])
    if found := _AMOUNT.fullmatch(answer.strip()):
        whole, cents = found[1].replace(",", ""), found[2] or ""
        forms += [whole + cents, *([whole] if cents in ("", ".00") else []), *([f"{whole}.00"] if not cents else [])]
        forms += [f"{int(whole):,}{cents}"]
    return list(dict.fromkeys(forms))


def _date_forms(year: str, month: str, day: str) -> list[str]:
    number = int(month) if month.isdigit() else [name.lower() for name in MONTHS].index(month.lower()) + 1
    if not 1 <= number <= 12:
        return []
    name = MONTHS[number - 1]
    if not year:
        return [f"{int(day)} {name}", f"{name} {int(day)}"]
    try:
        moment = date(int(year), number, int(day))
    except ValueError:
        return []
    return [f"{int(day)} {name} {year}", f"{name} {int(day)}, {year}", moment.isoformat()]
