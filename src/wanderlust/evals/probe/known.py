"""Answers that many questions have."""

from __future__ import annotations

_WORLDLY = (
    "yes no true false none left right up down north south east west red green blue black white positive negative "
    "neutral spam ham entailment contradiction 0 1 2 3 4 5 6 7 8 9 10 A B C D E F"
)
_CAPITALS = (
    "London Paris Berlin Madrid Rome Lisbon Vienna Bern Brussels Amsterdam Copenhagen Stockholm Oslo Helsinki "
    "Warsaw Prague Budapest Bucharest Sofia Athens Dublin Reykjavik Kyiv Moscow Ankara Cairo Tunis Algiers Rabat "
    "Nairobi Accra Lagos Abuja Pretoria Addis-Ababa Dakar Tokyo Beijing Seoul Delhi Bangkok Hanoi Jakarta Manila "
    "Canberra Wellington Ottawa Washington Mexico-City Havana Lima Bogota Santiago Brasilia Caracas Quito "
    "Montevideo Tehran Baghdad Riyadh"
)
_COUNTRIES = (
    "England Britain France Germany Spain Italy Portugal Austria Switzerland Belgium Netherlands Denmark Sweden "
    "Norway Finland Poland Czechia Hungary Romania Bulgaria Greece Ireland Iceland Ukraine Russia Turkey Egypt "
    "Tunisia Algeria Morocco Kenya Ghana Nigeria Ethiopia Senegal Japan China Korea India Thailand Vietnam "
    "Indonesia Philippines Australia Canada America USA Mexico Cuba Peru Colombia Chile Brazil Argentina "
    "Venezuela Ecuador Uruguay Iran Iraq Israel"
)
_CALENDAR = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August "
    "September October November December"
)
COMMON = _WORLDLY.split()
"""Labels, directions, colours, numbers, letters."""
KNOWN = [name.replace("-", " ") for name in f"{_WORLDLY} {_CAPITALS} {_COUNTRIES} {_CALENDAR}".split()]
"""Those, and capitals, countries, days and months."""
