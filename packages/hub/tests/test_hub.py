"""A hub: publish, find, verify; one changed byte is refused wherever it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

from counts import lines_run
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust_hub.entry import (
    HubError,
    Index,
    Key,
    Listing,
    SignedIndex,
    canonical,
    check_name,
    skeleton,
    version_order,
)
from wanderlust_hub.index import INDEX_FILE, LOG_FILE, Details, Hub
from wanderlust_hub.location import read_file
from wanderlust_hub.page import JAVASCRIPT, environment_page, first_page, search_files, write_pages
from wanderlust_hub.publishing import allow, create_hub, publish, revoke, yank
from wanderlust_hub.signing import INDEX, fingerprint, public_key, sign

MANY = 10_000
VERSION = "environments/sums/0.1.0"


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def run(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return done.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub with one version, published once by the commands; with keys beside it."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.chdir(place)
        for name in ("owner", "other"):
            make_key(place / name)
        assert run("new", "sums") == 0
        assert run("hub", "init", "hub", "--key", "owner", "--title", "Ours") == 0
        assert run("hub", "publish", "hub", "sums", "--key", "owner") == 0
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that a test may change."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(made / "hub", tmp_path / "hub")
    for name in ("owner", "owner.pub", "other", "other.pub"):
        shutil.copy(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_say_what_was_published(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hub", "search", "hub", "sums", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["environments"]
    assert (found["name"], found["oracle"], found["verdict"]) == ("sums", 1.0, "nothing found")
    assert run("hub", "info", "hub", "sums", "--json") == 0
    assert json.loads(capsys.readouterr().out)["card"]["players"]["oracle"]["reward"] == 1.0
    assert run("hub", "verify", "hub") == 0
    assert "OK: 2 records" in capsys.readouterr().out
    assert run("hub", "search", "hub", "nothing-like-it") == 1


def test_a_stored_card_is_taken_while_it_is_current(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new", "sums") == 0
    for name in ("first", "second", "third"):
        create_hub(name, key=Path("owner"))
    card = place / "card.json"
    assert run("hub", "publish", "first", "sums", "--key", "owner", "--stored-only") == 2
    with pytest.raises(UsageError, match=r"card\.json is not its current card"):
        publish("sums", hub="first", key=Path("owner"), card=card, stored_only=True)
    publish("sums", hub="first", key=Path("owner"), card=card)
    stored = card.read_bytes()
    mark = json.loads(stored) | {"tasks_played": 77}  # tells that the gate did not run
    card.write_text(json.dumps(mark))
    command = ("hub", "publish", "second", "sums", "--key", "owner", "--card", str(card), "--stored-only")
    assert run(*command) == 0
    assert Hub.open("second").info("sums").card["tasks_played"] == 77
    mark["digests"]["tasks/eval"] = "0" * 16
    card.write_text(json.dumps(mark))
    with pytest.raises(UsageError, match=r"card\.json is not its current card"):
        publish("sums", hub="third", key=Path("owner"), card=card, stored_only=True)
    publish("sums", hub="third", key=Path("owner"), card=card)
    made = json.loads(card.read_bytes())
    assert {**made, "cost": None} == {**json.loads(stored), "cost": None}
    assert Hub.open("third").info("sums").card == made


@pytest.mark.parametrize("part", ["code.whl", "data.jsonl", "card.json", INDEX_FILE, LOG_FILE])
def test_one_changed_byte_is_refused_everywhere(place: Path, part: str) -> None:
    file = place / "hub" / (part if part in (INDEX_FILE, LOG_FILE) else f"{VERSION}/{part}")
    whole, rng, refused = file.read_bytes(), Random(part), 0
    hub = Hub.open("hub")
    listing = hub.find("sums")

    def read() -> None:
        if part == INDEX_FILE:
            Hub.open("hub")
        elif part == LOG_FILE:
            done = hub.verify()
            assert not done.ok
            raise HubError(done.problems[0])
        else:
            hub.part(listing, {"code.whl": "code", "data.jsonl": "data", "card.json": "card"}[part])

    for _ in range(100):
        at = rng.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ rng.randrange(1, 256)]) + whole[at + 1 :])
        try:
            read()
        except HubError:
            refused += 1
    assert refused == 100


@pytest.mark.parametrize("part", [INDEX_FILE, LOG_FILE, f"{VERSION}/card.json"])
def test_truncated_files_are_one_line(place: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "hub" / part
    file.write_bytes(file.read_bytes()[:-20])
    assert run("hub", "verify", "hub") == 1
    out = capsys.readouterr()
    assert len((out.out + out.err).strip().splitlines()) <= 5
    assert "Traceback" not in out.err


def test_an_older_hub_is_refused(place: Path) -> None:
    shutil.copytree("hub", "older")
    yank("sums", "0.1.0", hub="hub", key=Path("owner"), reason="wrong keys")
    hub = Hub.open("hub")
    assert hub.search() == []
    assert hub.warning(hub.find("sums", "0.1.0")) == "yanked: wrong keys"
    with pytest.raises(UsageError, match="no usable version"):
        hub.find("sums")
    shutil.rmtree("hub")
    shutil.copytree("older", "hub")
    with pytest.raises(HubError, match="older index"):
        Hub.open("hub")


def test_unknown_and_revoked_keys_are_refused(place: Path) -> None:
    with pytest.raises(HubError, match="is unknown to this hub"):
        yank("sums", "0.1.0", hub="hub", key=Path("other"))
    allow(Path("other.pub"), hub="hub", key=Path("owner"))
    with pytest.raises(HubError, match="belongs to the key"):
        yank("sums", "0.1.0", hub="hub", key=Path("other"))
    with pytest.raises(HubError, match="only the owner's key"):
        allow(Path("owner.pub"), hub="hub", key=Path("other"))
    mark = fingerprint(public_key(Path("other")))
    revoke(mark, hub="hub", key=Path("owner"), reason="lost")
    with pytest.raises(HubError, match="is revoked: lost"):
        yank("sums", "0.1.0", hub="hub", key=Path("other"))
    assert Hub.open("hub").verify().ok
    index = Hub.open("hub").index
    forged = SignedIndex(
        format=1, index=index, by=mark, signature=sign(canonical(index), Path("other"), namespace=INDEX)
    )
    Path("hub", INDEX_FILE).write_bytes(canonical(forged))
    with pytest.raises(HubError, match="which is revoked"):
        Hub.open("hub")


def test_another_owner_is_refused(place: Path) -> None:
    with pytest.raises(HubError, match="and not to SHA256:x"):
        Hub.open("hub", owner="SHA256:x")
    Hub.open("hub")
    shutil.rmtree("hub")
    with pytest.raises(HubError, match="now belongs to the key"):
        create_hub("hub", key=Path("other"))
    assert not Path("hub/index.json").exists()


def test_a_version_stays_as_it_is(place: Path) -> None:
    before = {path: path.read_bytes() for path in Path("hub").rglob("*") if path.is_file()}
    with pytest.raises(HubError, match="must be higher"):
        publish(Path("hub", VERSION, "code.whl"), hub="hub", key=Path("owner"))
    with zipfile.ZipFile(Path("hub", VERSION, "code.whl")) as old, zipfile.ZipFile("alike.whl", "w") as new:
        for item in old.infolist():
            new.writestr(item, old.read(item).replace(b"Name: sums", b"Name: 5ums-x".replace(b"5ums-x", b"su-ms")))
    with pytest.raises(HubError, match="looks like 'sums'"):
        publish("alike.whl", hub="hub", key=Path("owner"))
    assert {path: path.read_bytes() for path in Path("hub").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "name", ["Sums", "sums_two", "sums--two", "-s", "sümŝ", "\u0455ums", "../x", "", "a" * 65, "s\n"]
)
def test_names_are_plain(name: str) -> None:
    with pytest.raises(UsageError, match="is no name for a hub"):
        check_name(name)


def test_looks_and_versions_are_compared() -> None:
    assert skeleton("w0rd-le") == skeleton("wordle")
    assert skeleton("rnail1") == skeleton("maill")
    assert skeleton("wordle") != skeleton("sums")
    ordered = ["0.1", "0.1.1", "1.9", "1.10a1", "1.10rc1", "1.10"]
    assert sorted(reversed(ordered), key=version_order) == ordered
    assert version_order("1.0") == version_order("1.0.0")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def address(place: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(place / "hub")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_hub_is_read_over_http(address: str, place: Path) -> None:
    hub = Hub.open(address)
    assert hub.search("sums")[0].entry.version == "0.1.0"
    assert hub.verify().ok
    with pytest.raises(HubError, match="larger than 10 bytes"):
        read_file(address, INDEX_FILE, limit=10)
    with pytest.raises(HubError, match="the server answered 404"):
        Hub.open(f"{address}/nowhere")
    with pytest.raises(UsageError, match="is a web address"):
        yank("sums", "0.1.0", hub=address, key=Path("owner"))


def test_pages_show_the_card_and_escape_it(place: Path) -> None:
    hub = Hub.open("hub")
    assert write_pages(hub, Path("pages")) == 2
    page = Path("pages/pages/sums.html").read_text()
    assert "<td>oracle</td><td>1.000</td>" in page
    assert "nothing found" in page
    evil = "<script>alert(1)</script>\"'&"
    listing = replace(hub.find("sums"), entry=replace(hub.find("sums").entry, summary=evil, licence=evil))
    card = {"players": {evil: {"reward": evil}}, "probe": {evil: [evil]}, "cost": {"episodes": evil, "cpu_seconds": 1}}
    shown = environment_page(hub, Details(listing=listing, card=card, versions=()), [replace(listing, yanked=evil)])
    shown += first_page(evil, [["sums", "1", evil, "", "", evil]], owner=evil)
    assert "<script>alert" not in shown
    assert "innerHTML = first" in JAVASCRIPT


def test_ten_thousand_environments(place: Path) -> None:
    """The first page stays within 300 KB, and a search does not go through every word; a bar has its time."""
    listing, key = Hub.open("hub").find("sums"), Key(key=public_key(Path("owner")), fingerprint="")
    key = replace(key, fingerprint=fingerprint(key.key))
    rng, words = Random(0), ["mail", "poker", "chess", "proofs", "code", "tools", "search", "grid", "letters", "plans"]

    def named(n: int) -> Listing:
        summary = f"{' '.join(rng.choices(words, k=8))} number {n}"
        return replace(listing, number=n, entry=replace(listing.entry, name=f"made-{n:05}", summary=summary))

    listings = tuple(named(n) for n in range(MANY))
    index = Index(title="Many", head="0" * 64, records=MANY + 1, keys=(key,), listings=listings, rankings=())
    signature = sign(canonical(index), Path("owner"), namespace=INDEX)
    Path("many").mkdir()
    signed = SignedIndex(format=1, index=index, by=key.fingerprint, signature=signature)
    Path("many", INDEX_FILE).write_bytes(canonical(signed))
    hub = Hub.open("many")
    hub.search("poker 9")
    found, lines = lines_run(hub.search, "poker 9")
    assert found
    assert lines < 30 * MANY
    rows = [[one.entry.name, "0.1.0", one.entry.summary, "1.000", "0.000", "nothing found"] for one in listings]
    assert len(first_page("Many", rows, owner=key.fingerprint).encode()) + len(JAVASCRIPT) <= 300_000
    assert len(search_files(rows)["po"][0]) == 2_000
