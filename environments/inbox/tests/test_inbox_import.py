"""One's own mail as an inbox: what is taken, what is mended, what is left out; nothing raises, nothing is lost."""

from __future__ import annotations

import os
import random
import stat
import sys
from pathlib import Path

import pytest

from mail_files import OWNER, correspondence, message, write_mbox
from wanderlust.errors import UsageError
from wanderlust_inbox.importing import REPORT_SUFFIX, ImportReport, import_mail
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.markup import html_text
from wanderlust_inbox.message import MAX_BODY_CHARS, decode_text
from wanderlust_inbox.store import InboxFile
from wanderlust_inbox.threads import bare_subject

HEAD = b"From: Ann <ann@post.example>\nTo: me@home.example\nDate: Mon, 2 Mar 2026 09:00:00 +0000\n"


def imported(tmp_path: Path, *raw: bytes, **options) -> tuple[list[InboxMail], ImportReport]:
    """The mails of a folder of such files, and the report."""
    folder = tmp_path / "mail"
    folder.mkdir(exist_ok=True)
    for number, data in enumerate(raw):
        (folder / f"{number:03}.eml").write_bytes(data)
    report = import_mail([folder], tmp_path / "out.inbox", **options)
    consistent(report)
    if not report.inbox:
        return [], report
    with InboxFile(report.inbox) as inbox:
        return inbox.mails(), report


def consistent(report: ImportReport) -> None:
    """Nothing is dropped in silence: the figures add up, and every reason is a line of the list."""
    assert report.found == report.mails + sum(report.left_out.values())
    lines = Path(report.report).read_text("utf-8").splitlines()
    assert sum(line.startswith("left out\t") for line in lines) == sum(report.left_out.values())
    assert sum(line.startswith("mended\t") for line in lines) == sum(report.mended.values())


def one(tmp_path: Path, raw: bytes) -> tuple[InboxMail, ImportReport]:
    (mail,), report = imported(tmp_path, raw)
    return mail, report


def test_an_mbox_becomes_an_inbox_with_threads_that_can_be_searched(tmp_path):
    mails = correspondence()
    report = import_mail([write_mbox(tmp_path / "a.mbox", mails)], tmp_path / "a.inbox")
    consistent(report)
    assert (report.mails, report.threads, report.owner, report.owner_share) == (38, 25, OWNER, 1.0)
    assert not report.mended
    assert not report.left_out
    with InboxFile(tmp_path / "a.inbox") as inbox:
        (bill,) = [hit for hit in inbox.search(["7137"]) if hit.subject.startswith("Invoice")]
        thread = inbox.thread(inbox.read(bill.id).thread)
        assert [mail.sender for mail in thread] == ["office@brook.example", OWNER]
        assert thread[1].reply_to == bill.id
        assert inbox.name_of("office@brook.example") == "Brook Heating"


def test_the_files_are_for_their_user_alone_and_nothing_else_is_left(tmp_path):
    source = write_mbox(tmp_path / "a.mbox", correspondence())
    before = os.umask(0)
    try:
        import_mail([source], tmp_path / "out" / "a.inbox")
    finally:
        os.umask(before)
    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert written == {"a.inbox": 0o600, f"a.inbox{REPORT_SUFFIX}": 0o600}


def test_a_mail_has_the_same_id_whenever_it_is_imported(tmp_path):
    mails = correspondence()
    import_mail([write_mbox(tmp_path / "a.mbox", mails[:20])], tmp_path / "a.inbox")
    import_mail([write_mbox(tmp_path / "b.mbox", mails[::-1])], tmp_path / "b.inbox")
    with InboxFile(tmp_path / "a.inbox") as few, InboxFile(tmp_path / "b.inbox") as all_of_them:
        assert {mail.id for mail in few.mails()} < {mail.id for mail in all_of_them.mails()}


def test_maildirs_folders_and_single_files_are_read_together(tmp_path):
    mails = correspondence()
    maildir = tmp_path / "Mail" / "box"
    for part in ("cur", "new", "tmp"):
        (maildir / part).mkdir(parents=True)
    (maildir / "cur" / "1.x:2,S").write_bytes(mails[0].as_bytes())
    (maildir / "new" / "2.x").write_bytes(mails[1].as_bytes())
    (maildir / "tmp" / "3.x").write_bytes(mails[2].as_bytes())
    (maildir / "dovecot-uidlist").write_text("3 V1 N2\n")
    write_mbox(tmp_path / "Mail" / "archive", mails[3:6])
    apple = mails[6].as_bytes()
    (tmp_path / "Mail" / "7.emlx").write_bytes(b"%d\n%s" % (len(apple), apple))
    (tmp_path / "Mail" / "empty.mbox").write_bytes(b"")
    report = import_mail([tmp_path / "Mail"], tmp_path / "a.inbox")
    consistent(report)
    assert report.mails == 6
    assert report.left_out == {"no mail": 1, "an empty file": 1, "an unfinished delivery (tmp)": 1}


def test_links_pipes_and_files_that_cannot_be_read_are_lines_of_the_report(tmp_path):
    folder = tmp_path / "mail"
    folder.mkdir()
    (folder / "a.eml").write_bytes(HEAD + b"Subject: x\n\nbody\n")
    (folder / "loop").symlink_to(folder)
    (folder / "link.eml").symlink_to(folder / "a.eml")
    os.mkfifo(folder / "pipe")
    deep = folder
    for _ in range(70):
        deep = deep / "d"
    deep.mkdir(parents=True)
    report = import_mail([folder, Path("/proc/self/mem")], tmp_path / "a.inbox")
    consistent(report)
    assert report.mails == 1
    assert report.left_out["a link, which is not followed"] == 2
    assert report.left_out["no regular file"] == 1
    assert report.left_out["a folder more than 64 levels deep"] == 1
    assert sum("cannot be read" in reason for reason in report.left_out) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="no file is unreadable for root: run the tests as another user")
def test_unreadable_folders_are_lines_of_the_report(tmp_path):
    shut = tmp_path / "mail" / "shut"
    shut.mkdir(parents=True, mode=0)
    report = import_mail([tmp_path / "mail"], tmp_path / "a.inbox")
    assert report.left_out == {"cannot be read: Permission denied": 1}


def test_an_empty_inbox_writes_no_inbox(tmp_path):
    mails, report = imported(tmp_path)
    assert mails == []
    assert (report.inbox, report.found, report.mails) == ("", 0, 0)
    assert not (tmp_path / "out.inbox").exists()


@pytest.mark.parametrize(
    ("paths", "out", "owner", "words"),
    [
        (["missing"], "a.inbox", "", "there is nothing at"),
        ([], "a.inbox", "", "nothing to import"),
        (["."], "taken.txt", "", "is no inbox"),
        (["."], "a.inbox", "rita", "an address"),
    ],
)
def test_wrong_calls_are_one_line(tmp_path, monkeypatch, paths, out, owner, words):
    monkeypatch.chdir(tmp_path)
    Path("taken.txt").write_text("precious")
    with pytest.raises(UsageError, match=words):
        import_mail(paths, out, owner=owner)
    assert Path("taken.txt").read_text() == "precious"


def test_importing_again_replaces_the_inbox(tmp_path):
    source = write_mbox(tmp_path / "a.mbox", correspondence()[:5])
    import_mail([source], tmp_path / "a.inbox")
    write_mbox(source, correspondence())
    assert import_mail([source], tmp_path / "a.inbox").mails == 38
    with InboxFile(tmp_path / "a.inbox") as inbox:
        assert len(inbox) == 38


def test_duplicates_are_left_out_but_no_other_mail_that_claims_their_id(tmp_path):
    raw = HEAD + b"Subject: Rent\nMessage-ID: <1@x>\n\nIt is 900 EUR.\n"
    other = raw.replace(b"ann@post", b"eve@evil")
    anonymous = HEAD + b"Subject: none\n\none\n"
    mails, report = imported(tmp_path, raw, raw, other, anonymous, anonymous, anonymous + b"two\n")
    assert report.left_out == {"the same mail again": 2}
    assert len(mails) == 4
    assert len({mail.id for mail in mails}) == 4


def test_threads_by_references_to_a_missing_mail_and_by_subject(tmp_path):
    def raw(number: int, subject: str, extra: str = "", sender: str = "ann@post.example") -> bytes:
        return (
            f"From: {sender}\nTo: me@home.example\nDate: Mon, {number} Mar 2026 09:00:00 +0000\n"
            f"Message-ID: <{number}@x>\nSubject: {subject}\n{extra}\n{number}\n"
        ).encode()

    mails, _ = imported(
        tmp_path,
        raw(2, "Plan", "References: <lost@x>\n"),
        raw(3, "Other words", "References: <lost@x>\n"),
        raw(4, "Boat"),
        raw(5, "AW: Re[2]: boat"),
        raw(6, "Re: Boat", "", "stranger@else.example").replace(b"me@home", b"them@else"),
        raw(7, "Boat"),
    )
    thread = [mail.thread for mail in mails]
    assert thread[0] == thread[1]
    assert thread[2] == thread[3]
    assert mails[3].reply_to == mails[2].id
    assert len({*thread[2:]}) == 3
    assert bare_subject("[list] Re: AW: Fwd:  The  Boat") == "the boat"


def test_html_alone_becomes_text_without_scripts_and_with_links(tmp_path):
    html = (
        '<html><style>p{}</style><script>steal("<p>")</script><p>Dear&nbsp;Rita,</p><p>see <a href="https://a.example/x">'
        'the plan</a><br>or <a href="mailto:b@a.example">b@a.example</a></p><div style="display:none">unseen</div>'
        "<blockquote>older</blockquote></html>"
    )
    mail, report = one(tmp_path, HEAD + b"Subject: x\nContent-Type: text/html\n\n" + html.encode())
    assert mail.body == "Dear Rita,\n\nsee the plan (https://a.example/x)\nor b@a.example\n\n> older"
    assert report.mended == {"HTML alone: its text was taken": 1}


def test_plain_text_is_preferred_and_attachments_are_names(tmp_path):
    mail = message(1, "Ann <ann@post.example>", "Plan", "The plan is attached.")
    mail.add_alternative("<p>other</p>", subtype="html")
    mail.add_attachment(b"x" * 1000, maintype="application", subtype="pdf", filename="Pläne für Mai.pdf")
    mail.add_attachment(message(2, "bob@post.example", "Inner one", "hidden"))
    taken, report = one(tmp_path, mail.as_bytes())
    assert taken.body == "The plan is attached."
    assert taken.attachments == ("Pläne für Mai.pdf", "Inner one.eml")
    assert not report.mended


def test_encoded_headers_and_names(tmp_path):
    raw = (
        b"From: =?utf-8?q?J=C3=BCrgen_=22der=22_Bo=C3=9F?= <J@Post.example>\nTo: =?x-no?b?4A==?= <me@home.example>,\n"
        b" =?utf-8?b?w=\xff?= <two@home.example>\nCC: undisclosed-recipients:;\n"
        b"Subject: =?iso-8859-1?Q?Gr=FC=DFe?=\n =?utf-8?B?IOKCrDQw?=\nDate: Mon, 2 Mar 2026 10:00:00 +0100\n\nx\n"
    )
    mail, report = one(tmp_path, raw)
    assert (mail.sender, mail.subject, mail.date) == ("j@post.example", "Grüße €40", "2026-03-02T09:00:00")
    assert mail.recipients == ("me@home.example", "two@home.example")
    with InboxFile(report.inbox) as inbox:
        assert inbox.name_of("j@post.example") == 'Jürgen "der" Boß'


def test_a_stranger_cannot_rename_anybody(tmp_path):
    own = HEAD.replace(b"Ann <", b"Ann Reed <") + b"Subject: a\n\nx\n"
    evil = HEAD.replace(b"Ann <ann@post", b"Eve <eve@evil").replace(b"To: ", b"To: Nobody <ann@post.example>, ")
    _, report = imported(tmp_path, own, *(evil + b"Subject: %d\n\nx\n" % n for n in range(5)))
    with InboxFile(report.inbox) as inbox:
        assert inbox.name_of("ann@post.example") == "Ann Reed"


@pytest.mark.parametrize(
    ("data", "charset", "text", "mended"),
    [
        ("é".encode(), "iso-8859-1", "é", True),
        ("é".encode("latin-1"), "utf-8", "é", True),
        ("é".encode("latin-1"), "", "é", False),
        ("“x”".encode("cp1252"), "iso-8859-1", "“x”", False),
        (b"abc", "x-unheard-of", "abc", True),
        (b"abc", "idna", "abc", True),
        (b"a\xe9", "base64", "aé", True),
        ("жук".encode("koi8-r"), "koi8-r", "жук", False),
        ("日本".encode("iso2022_jp"), "iso-2022-jp", "日本", False),
        ("日本".encode(), "gb2312", "日本", True),
        (b"\x81\x8d", "ascii", "\ufffd\ufffd", True),
        (b"abcd", "utf-16", "abcd", False),
        (b"x", "\udc80", "x", True),
    ],
)
def test_charsets_that_lie_or_are_unknown(data, charset, text, mended):
    assert decode_text(data, charset)[0] == text
    assert bool(decode_text(data, charset)[1]) == mended


@pytest.mark.parametrize(
    ("header", "date"),
    [
        (b"Date: Fri, 31 Dec 1999 23:00:00 -0800", "2000-01-01T07:00:00"),
        (b"Date: 5 May 2026 10:00 (very (odd) time)", "2026-05-05T10:00:00"),
        (b"Date: tomorrow\nReceived: by x; Tue, 3 Mar 2026 09:00:00 +0000", "2026-03-03T09:00:00"),
        (b"Date: Mon, 99 Mar 99999 99:99:99 +9999", "1970-01-01T00:00:00"),
        (b"X: y", "1970-01-01T00:00:00"),
    ],
)
def test_dates(tmp_path, header, date):
    mail, report = one(tmp_path, b"From: a@b.example\nSubject: x\n" + header + b"\n\nx\n")
    assert mail.date == date
    assert bool(report.mended) == (date < "1999" or b"tomorrow" in header)


def test_a_mail_of_50_mb_is_cut_with_a_note(tmp_path):
    mail = message(1, "ann@post.example", "Photos", "See the photos.")
    mail.add_attachment(b"\0" * 36_000_000, maintype="image", subtype="jpeg", filename="sea.jpg")
    (tmp_path / "big.eml").write_bytes(mail.as_bytes())
    (tmp_path / "text.eml").write_bytes(HEAD + b"Subject: log\n\n" + b"all is well " * 4_300_000)
    assert min((tmp_path / name).stat().st_size for name in ("big.eml", "text.eml")) > 48_000_000
    report = import_mail([tmp_path / "big.eml", tmp_path / "text.eml"], tmp_path / "a.inbox")
    with InboxFile(report.inbox) as inbox:
        photos, log = sorted(inbox.mails(), key=lambda mail: len(mail.body))
    assert photos.body == "See the photos."
    assert photos.attachments == ("sea.jpg",)
    assert len(log.body) < MAX_BODY_CHARS + 100
    assert log.body.endswith("characters left out]")
    assert report.mended == {
        "a text of more than 1,000,000 bytes was cut": 1,
        f"a text of more than {MAX_BODY_CHARS:,} characters was cut": 1,
    }


def test_broken_mboxes(tmp_path):
    mails = [mail.as_bytes() for mail in correspondence()[:3]]
    line = b"From a@b.example Mon Mar  2 09:00:00 2026\n"
    body = b"\nFrom now on 10:30 in 2026 is our time\nFrom: here\n"
    broken = b"junk\n" + line + mails[0] + line + mails[1] + body + b"\n" + line + mails[2][:150] + b"\0\xff"
    (tmp_path / "a.mbox").write_bytes(broken)
    (tmp_path / "junk.mbox").write_bytes(bytes(range(256)) * 400)
    report = import_mail([tmp_path / "a.mbox", tmp_path / "junk.mbox"], tmp_path / "a.inbox")
    consistent(report)
    assert report.mails == 3
    assert report.left_out == {"text before the first message of an mbox": 2}
    assert report.mended["mbox without a blank line between messages"] == 2


def test_a_sentence_that_begins_with_from_splits_no_message(tmp_path):
    mail = message(1, "ann@post.example", "x", "Hello.\n\nFrom Monday on we meet.\n\nFrom: the desk of Ann\n")
    report = import_mail([write_mbox(tmp_path / "a.mbox", [mail])], tmp_path / "a.inbox")
    with InboxFile(report.inbox) as inbox:
        (taken,) = inbox.mails()
    assert "From Monday on we meet." in taken.body


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: text/plain; charset*=utf-8''utf-8",
        b"Content-Type: text/plain; charset*0*=utf-8''; charset*1=utf-8",
        b"Content-Type: text/plain; charset*0=a; charset*x=b; charset*=c",
        b"Content-Type: text/plain; charset=a\x00b",
        b"Content-Type: multipart/mixed; boundary*=x; boundary*0=a",
        b"Content-Type: text/plain; name*=x; name*0=a",
        b"Content-Type: multipart/mixed",
        b"Content-Type: multipart/alternative; boundary=nowhere",
        b"Content-Type: text/markdown; charset=utf-8",
        b"Content-Type: nonsense",
        b"Content-Disposition: inline; filename*=x; filename*0=a",
    ],
)
def test_broken_parameters_lose_no_mail(tmp_path, header):
    mail, _ = one(tmp_path, HEAD + b"Subject: x\n" + header + b"\n\nthe text \xc3\xa9\n")
    assert "the text é" in mail.body


HOSTILE = {
    "nested comments": b"From: " + b"(" * 50_000 + b"a@b.example\nSubject: x\n\nx",
    "nested parts": b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\n%s\n--%d\n' % (n, b"" if n else HEAD, n) for n in range(3000)
    ),
    "nested messages": HEAD + b"Content-Type: message/rfc822\n\n" * 3000,
    "long header": HEAD + b"Subject: " + b"=?utf-8?q?" * 200_000 + b"\n\nx",
    "many headers": HEAD + b"X-A: b\n" * 200_000 + b"\nx",
    "many addresses": b"From: a@b.example\nTo: " + b"a@b.example, " * 100_000 + b"\n\nx",
    "many references": HEAD + b"References: " + b"<a@b> " * 100_000 + b"\n\nx",
    "folded header": HEAD + b"Subject: a\n" + b" \n" * 100_000 + b"\nx",
    "unclosed tags": HEAD + b"Content-Type: text/html\n\n" + b"<a " * 300_000,
    "open brackets": HEAD + b"Content-Type: text/html\n\n" + b"<" * 900_000,
    "open links": HEAD + b"Content-Type: text/html\n\n" + b"<a href='" * 100_000,
    "entities": HEAD + b"Content-Type: text/html\n\n" + b"&#x" * 300_000,
    "punycode": HEAD + b"Content-Type: text/plain; charset=punycode\n\n" + b"a" * 900_000,
    "uuencode": HEAD + b"Content-Transfer-Encoding: x-uuencode\n\nbegin 644 x\n" + b"\xff" * 90_000,
    "bad type": HEAD + b"Content-Type: ;;;=\nContent-Disposition: ;filename*=utf-9''%ff%\n\nx",
    "bad parameters": HEAD + b"Content-Type: text/plain; charset*0*=x'y'; charset*9=z; name*x=1\n\nx",
    "control characters": HEAD + b"Subject: \x1b[2J\x07 red\n\n\x1b]0;x\x07 \x00 body \xe2\x80\xae evil",
    "no body": HEAD.rstrip(),
    "one line of 5 MB": HEAD + b"Subject: x\n\n" + b"y" * 5_000_000,
    "many parts": HEAD + b'Content-Type: multipart/mixed; boundary="b"\n\n' + b"--b\n\nx\n" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mails_are_read_or_left_out(tmp_path, name):
    mails, report = imported(tmp_path, HOSTILE[name])
    assert report.found == 1
    for mail in mails:
        shown = (mail.subject, mail.body, *mail.attachments, mail.sender)
        assert not any("\x1b" in text or "\x00" in text or "\n" in text for text in (shown[0], *shown[2:]))
        assert "\x1b" not in mail.body


def test_random_bytes_in_mails_raise_nothing(tmp_path):
    rng, mails = random.Random(7), correspondence()
    mails[0].add_alternative("<p>x</p>", subtype="html")
    files = []
    for _ in range(400):
        raw = bytearray(rng.choice(mails).as_bytes())
        for _ in range(rng.randrange(1, 40)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(6))
        files.append(bytes(raw[: rng.randrange(1, len(raw))] if rng.random() < 0.3 else raw))
    _, report = imported(tmp_path, *files)
    assert report.found == 400


def lines_run(text: str) -> int:
    """Lines of Python that reading this text runs, which no machine's speed changes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        html_text(text)
    finally:
        sys.settrace(before)
    return count


def test_text_of_html_is_linear_in_its_length():
    for piece in ("<a ", "<", "<!--", "<td>x", "<blockquote>", "<a href='x'>y", '<a b=">', "&a", "<script>"):
        html_text(piece * (500_000 // len(piece)))  # what is not linear would take hours
        short, long = (lines_run(piece * n) for n in (1_000, 10_000))
        assert long <= 11 * short
