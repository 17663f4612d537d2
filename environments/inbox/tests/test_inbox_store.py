"""The file of an inbox: search, read, hostile keywords, dates, threads and processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wanderlust.errors import StoreError, UsageError
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.store import InboxFile, write_inbox

ANN, BOB, ME = "ann.vale@post.example", "bob@firm.example", "me@post.example"


def mail(number: int, sender: str, subject: str, body: str, **more: object) -> InboxMail:
    date = f"2026-05-{number:02}T09:00:00"
    fields = {"thread": f"t{number}", "recipients": (ME,), **more}
    return InboxMail(id=f"m{number}", date=date, sender=sender, subject=subject, body=body, **fields)  # type: ignore[arg-type]


@pytest.fixture
def inbox(tmp_path: Path) -> InboxFile:
    mails = [
        mail(3, ANN, "Re: Boiler", "Now on Friday.\n\nOn Monday Bob wrote:\n> the furnace", thread="t1", reply_to="m1"),
        mail(1, ANN, "Boiler", "The plumber comes on Tuesday. Café is open.", attachments=("plan_v2.pdf",)),
        mail(2, BOB, "Boiler", 'He said "never" (AND) x:y.', cc=(ANN,)),
    ]
    path = tmp_path / "a.inbox"
    assert write_inbox(path, mails, owner=ME, names={ANN: "Ann Vale"}, about={"seed": 1}) == 3
    return InboxFile(path)


def found(inbox: InboxFile, *keywords: str, **filters: str) -> list[str]:
    return [hit.id for hit in inbox.search(keywords, **filters)]  # type: ignore[arg-type]


def test_newest_first_with_all_keywords_and_headers(inbox: InboxFile) -> None:
    assert found(inbox, "boiler") == ["m3", "m2", "m1"]
    assert found(inbox, "boiler", "plumber") == ["m1"]
    assert found(inbox, "cafe") == found(inbox, "plan v2") == ["m1"]
    assert found(inbox, sender="Vale") == ["m3", "m1"]
    assert found(inbox, recipient=ANN) == ["m2"]
    assert found(inbox, "ann") == []
    assert found(inbox, "boiler", after="2026-05-02", before="2026-05-03") == ["m2"]
    assert found(inbox, after="2026-06-01") == found(inbox, before="2026-01-01") == []
    assert [hit.id for hit in inbox.search(["boiler"], limit=1)] == ["m3"]


@pytest.mark.parametrize(
    "text", ['"', "boiler OR", "NEAR(", "*", "x:y", "a\0b", "\ud800", "boiler) AND (", "-", "'; drop"]
)
def test_hostile_keywords_are_words(inbox: InboxFile, text: str) -> None:
    inbox.search([text], sender=text, recipient=text)
    assert found(inbox, "boiler") == ["m3", "m2", "m1"]


def test_many_keywords_are_bounded(inbox: InboxFile) -> None:
    assert found(inbox, *["boiler"] * 10_000, "x" * 1_000_000) == ["m3", "m2", "m1"]
    assert len(inbox.search(limit=1_000_000)) == 3
    assert inbox.search(limit=-5) == []


def test_a_wrong_date_is_one_line(inbox: InboxFile) -> None:
    with pytest.raises(UsageError, match="no date: write it like 2026-05-14"):
        inbox.search(after="yesterday\n")


def test_a_mail_is_read_as_written(inbox: InboxFile) -> None:
    one = inbox.read("m3")
    assert one is not None
    assert one.new_text == "Now on Friday."
    assert (one.reply_to, one.thread, inbox.name_of(one.sender), inbox.about) == ("m1", "t1", "Ann Vale", {"seed": 1})
    assert inbox.read("m9") is None
    assert inbox.read("\ud800") is None
    assert [mail.id for mail in inbox.thread("t1")] == ["m1", "m3"]
    assert len(inbox) == 3


def test_threads_and_copies_share_a_file(inbox: InboxFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert {tuple(one) for one in pool.map(lambda _: found(inbox, "boiler"), range(200))} == {("m3", "m2", "m1")}
    again = pickle.loads(pickle.dumps(inbox))
    assert found(again, "boiler") == ["m3", "m2", "m1"]


def test_ranked_takes_any_of_the_words(inbox: InboxFile) -> None:
    assert inbox.ranked(["plumber", "unheard", "boiler"])[0].id == "m1"
    assert inbox.ranked(["?"]) == []


def test_what_is_no_inbox_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no inbox"):
        InboxFile(tmp_path / "none")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(StoreError, match="cannot read the inbox"):
        InboxFile(tmp_path / "text")


def test_equal_ids_leave_no_file(tmp_path: Path) -> None:
    one = mail(1, ANN, "a", "b")
    with pytest.raises(UsageError, match="the same id"):
        write_inbox(tmp_path / "b.inbox", [one, one], owner=ME)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_inbox_has_no_hits(tmp_path: Path) -> None:
    write_inbox(tmp_path / "c.inbox", [], owner=ME)
    with InboxFile(tmp_path / "c.inbox") as inbox:
        assert found(inbox, "boiler") == found(inbox, after="2026-01-01") == []
        assert len(inbox) == 0
