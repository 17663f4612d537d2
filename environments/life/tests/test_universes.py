"""Universes: the same everywhere, in agreement with themselves, different from each other, as large as they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest

from universe_consistency import check_universe
from wanderlust.errors import UsageError
from wanderlust_life.universes.generate import LifeApps, make_universe
from wanderlust_life.universes.people import LIFE_SIZES
from wanderlust_life.universes.text_templates import word_list, word_pairs
from wanderlust_worlds.apps.calendar import Calendar
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.shopping import Shopping
from wanderlust_worlds.engine.cow_dict import CowDict

SEEDS = [("small", seed) for seed in range(20)] + [("medium", seed) for seed in range(3)] + [("gaia2", 0)]


def text_of(found):
    return json.dumps({name: app.state() for name, app in found.apps.items()}, sort_keys=True)


@pytest.mark.parametrize("split", ["train", "held"])
def test_universes_agree_with_themselves(split):
    for size, seed in SEEDS:
        assert check_universe(make_universe(seed, size, split)) == [], (size, seed)


def test_a_universe_is_the_same_in_every_process():
    program = (
        "import json, hashlib; from wanderlust_life.universes.generate import make_universe;"
        "u = make_universe(7, 'medium'); t = json.dumps({n: a.state() for n, a in u.apps.items()}, sort_keys=True);"
        "print(hashlib.sha256(t.encode()).hexdigest())"
    )
    here = sha256(text_of(make_universe(7, "medium")).encode()).hexdigest()
    for hashing in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


def test_seeds_make_different_people():
    people = [make_universe(seed).user.name for seed in range(25)]
    assert len(set(people)) > 20
    assert len({text_of(make_universe(seed)) for seed in range(25)}) == 25


def test_splits_share_no_names():
    for first, second in (
        (word_list("train.women") + word_list("train.men"), word_list("held.women") + word_list("held.men")),
        *((word_pairs(f"train.{kind}", ends, ""), word_pairs(f"held.{kind}", ends, "")) for kind, ends in NAMES),
        (word_list("train.brands"), word_list("held.brands")),
    ):
        assert not set(first) & set(second)
    names = [
        {one.name for seed in range(5) for one in make_universe(seed, "medium", split).people.values()}
        for split in SPLITS
    ]
    assert names[0] & names[1] == {"City Cabs"}


SPLITS = ("train", "held")
NAMES = (
    ("surnames", "endings"),
    ("towns", "town_endings"),
    ("streets", "street_endings"),
    ("places", "place_endings"),
    ("firms", "firm_endings"),
    ("firms", "shop_endings"),
    ("firms", "agency_endings"),
)


def test_sizes_are_what_they_say():
    lengths = {size: len(text_of(make_universe(0, size))) for size in LIFE_SIZES}
    assert 50_000 < lengths["small"] < 150_000
    assert 200_000 < lengths["medium"] < 500_000
    assert 1_300_000 < lengths["gaia2"] < 1_900_000


def test_thousands_of_sentences_are_distinct():
    found = make_universe(0, "gaia2")
    talks = [talk for name in ("Chats", "Messages") for talk in found.apps[name].conversations.values()]
    texts = [said.content for talk in talks for said in talk.messages]
    texts += [mail.content for mail in found.apps["Emails"].inbox.values()]
    sentences = {part for text in texts for part in re.split(r"(?<=[.?!])\s|\n", text) if len(part) > 12}
    assert len(sentences) > 3_000


def test_another_size_is_refused():
    with pytest.raises(UsageError, match="one of small, medium, gaia2"):
        make_universe(0, "huge")


# The check can fail: each of these breaks one thing


def broken(app, **state):
    found = make_universe(1)
    old = found.apps[app]
    fields = {key: getattr(old, key) for key in old.fields()}
    changed = type(old)(app, **{**fields, **state})
    return replace(found, life=LifeApps(*(changed if one is old else one for one in found.life)))


def test_a_lost_contact_is_found():
    rows = dict(make_universe(1).apps["Contacts"].contacts.rows())
    sender = next(iter(make_universe(1).apps["Emails"].inbox.values())).sender
    del rows[next(key for key, one in rows.items() if one.email == sender)]
    assert any("whom nobody knows" in line for line in check_universe(broken("Contacts", contacts=CowDict(rows))))


def test_a_double_booking_is_found():
    calendar = make_universe(1).apps["Calendar"]
    assert isinstance(calendar, Calendar)
    one = next(iter(calendar.events.values()))
    twice = {**calendar.events.rows(), "again": msgspec.structs.replace(one, event_id="again")}
    assert any("at the same time" in line for line in check_universe(broken("Calendar", events=CowDict(twice))))


def test_an_order_of_another_price_is_found():
    shop = make_universe(1).apps["Shopping"]
    assert isinstance(shop, Shopping)
    rows = shop.orders.rows().items()
    dear = {key: msgspec.structs.replace(one, order_total=one.order_total + 1) for key, one in rows}
    lines = check_universe(broken("Shopping", orders=CowDict(dear)))
    assert any("its parts" in line for line in lines)
    assert any("the shop knows nothing" in line for line in lines)


def test_a_mail_from_the_future_and_a_slip_of_the_pen_are_found():
    mail = make_universe(1).apps["Emails"]
    assert isinstance(mail, Mail)
    one = next(iter(mail.inbox.values()))
    late = msgspec.structs.replace(one, timestamp=make_universe(1).start + 1, content="Hello {name}")
    lines = check_universe(broken("Emails", inbox=CowDict({**mail.inbox.rows(), one.email_id: late})))
    assert any("future" in line for line in lines)
    assert any("'{' in it" in line for line in lines)
