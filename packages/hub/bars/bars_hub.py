"""Hubs: an environment published, added and evaluated elsewhere; what is tampered with; packages that do harm.

The wall time is that of the whole commands, without a network. Cost of isolation is processor time of both processes,
read from the kernel, without the start. Tampering changes one byte of a file at a random place.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.bar import Bar

from hub_attacks import CODES, WHEELS, Code, publish_unchecked
from wanderlust.environment import Environment, Limits
from wanderlust.errors import EnvironmentFailure, SandboxFailure, UsageError, WanderlustError
from wanderlust.plugins import declared
from wanderlust.policies.resolve import players_of
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups
from wanderlust.store.records import pack
from wanderlust.tasks.registry import ENTRY_POINTS, make_environment
from wanderlust.tasks.selection import iter_tasks
from wanderlust.types import Group, Rollout, Status
from wanderlust_hub.add import add
from wanderlust_hub.entry import HubError, Index, Key, Listing, SignedIndex, canonical
from wanderlust_hub.index import INDEX_FILE, LOG_FILE, Hub
from wanderlust_hub.isolated import IsolatedEnvironment
from wanderlust_hub.launch import Source
from wanderlust_hub.page import JAVASCRIPT, first_page
from wanderlust_hub.permissions import Permissions
from wanderlust_hub.publishing import create_hub
from wanderlust_hub.signing import INDEX, fingerprint, public_key, sign

ROOT = Path(__file__).parent.parent
TIMES, MANY = 100, 10_000
SAME = ("calculator", "wordle", "connections", "search", "titles", "tool-call", "user-simulator", "tictactoe")
"""Ready-made environments that are played in both ways."""
TASKS, SAMPLES, TURNS, EPISODES = 12, 4, 20, 200
ATTACK_SECONDS = 4.0
TALK = """\
from wanderlust import MultiTurnEnvironment, Task, user

class Talk(MultiTurnEnvironment):
    def __init__(self):
        super().__init__([Task(id=f"task-{n}", prompt=(user("Say something. " * 10),)) for n in range(EPISODES)])

    def respond(self, messages, episode):
        episode.reward("turns", 1.0)
        return None if len(messages) >= 2 * TURNS else f"Turn {len(messages)}: go on, and say more. " * 5
"""
DAMAGED_FILES = ("code.whl", "data.jsonl", "card.json", INDEX_FILE, LOG_FILE)
VERSION = "environments/sums/0.1.0"


def source(folder: Path, target: str, *requires: str) -> Source:
    """A package that lies unpacked in a folder, without permissions."""
    return Source(
        name="package",
        code=folder,
        libraries=folder / "none",
        target=target,
        requires=requires,
        permissions=Permissions(),
        digest="0" * 64,
    )


def make_key(path: Path) -> Path:
    """A key of SSH without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@contextmanager
def own_folders(place: Path) -> Iterator[None]:
    """Hubs that were seen and environments that were added are those of `place`."""
    names = ("XDG_CACHE_HOME", "XDG_DATA_HOME")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(place / name) for name in names})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def wander(*words: str, cwd: Path) -> None:
    """Run a command as another process."""
    command = [sys.executable, "-m", "wanderlust.cli.main", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"wander {' '.join(words)}: {done.stderr[-500:]}")


def from_publishing_to_figures(place: Path) -> tuple[float, str]:
    """Wall seconds of publish, add and eval; the note has each."""
    key, elsewhere = make_key(place / "key"), place / "elsewhere"
    elsewhere.mkdir()
    wander("hub", "init", "hub", "--key", str(key), cwd=place)
    wander("new", "sums", cwd=place)
    steps = {
        "publish": (("hub", "publish", "hub", "sums", "--key", str(key)), place),
        "add": (("hub", "add", str(place / "hub"), "sums", "--yes"), elsewhere),
        "eval": (("eval", "sums", "--policy", "oracle", "--out", "run"), elsewhere),
    }
    spent, before = {}, resource.getrusage(resource.RUSAGE_CHILDREN)
    for name, (words, cwd) in steps.items():
        began = time.perf_counter()
        wander(*words, cwd=cwd)
        spent[name] = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.items())
    return sum(spent.values()), f"{shown}; {processor:.1f} s of processor time; no network"


def refusals(place: Path) -> dict[str, int]:
    """How often one changed byte is refused, by the file that it is in."""
    refused = dict.fromkeys(DAMAGED_FILES, 0)
    for name in DAMAGED_FILES:
        file = place / "hub" / (name if name in (INDEX_FILE, LOG_FILE) else f"{VERSION}/{name}")
        whole, rng = file.read_bytes(), Random(name)
        for _ in range(TIMES):
            at = rng.randrange(len(whole))
            file.write_bytes(whole[:at] + bytes([whole[at] ^ rng.randrange(1, 256)]) + whole[at + 1 :])
            try:
                add("sums", hub=place / "hub", approve=lambda entry: True)
            except (HubError, UsageError):
                refused[name] += 1
        file.write_bytes(whole)
    return refused


def wheels_through(place: Path) -> list[str]:
    """The wheels that were added, or left something behind."""
    through, key = list[str](), make_key(place / "attacker")
    for number, (name, wheel) in enumerate(WHEELS.items()):
        hub, data = place / f"hub-{number}", Path(os.environ["XDG_DATA_HOME"])
        create_hub(hub, key=key)
        entry = publish_unchecked(wheel, hub=hub, key=key)
        try:
            add(entry.name, hub=hub, approve=lambda entry: True)
        except (HubError, UsageError) as error:
            said = str(error)
        else:
            said = "\n"
        left = [path for path in data.rglob("*") if path.is_file() and path.name != ".lock"]
        if "\n" in said or left or list(place.rglob("escaped*")) or Path("/tmp/escaped.py").exists():
            through.append(name)
        shutil.rmtree(hub)
    return through


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What a package is after, on this machine."""

    folder: Path
    secret: str
    told: Mapping[str, Any]
    """Names for the packages."""

    @property
    def damage(self) -> bool:
        """Whether a file has changed, or a process was left behind."""
        changed = any(Path(self.told[name]).exists() for name in ("marker", "cache"))
        changed |= Path(self.told["package"]).read_text() != self.secret
        return changed or "sleep\x003217" in _command_lines()


def _command_lines() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


@contextmanager
def attacked_places(folder: Path) -> Iterator[Places]:
    """Files, sockets and a variable that hold a secret, for the time of the block."""
    secret, names = secrets.token_hex(16), {}
    for name in ("home", "temporary", "key", "package"):
        names[name] = str(folder / name)
        Path(names[name]).write_text(secret)
    names |= {"marker": str(folder / "marker"), "cache": str(folder / "cache"), "unix": str(folder / "unix")}
    names["abstract"] = f"wanderlust-{secret[:8]}"
    tcp = socket.create_server(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(names["unix"])
    abstract.bind("\0" + names["abstract"])
    listeners = (tcp, unix, abstract)
    for one in listeners:
        one.listen()
        threading.Thread(target=_hand_out, args=(one, secret), daemon=True).start()
    os.environ["ATTACKED_KEY"] = secret
    told = {**names, "port": tcp.getsockname()[1], "pid": os.getpid(), "proof": secrets.token_hex(16)}
    try:
        yield Places(folder=folder, secret=secret, told=told)
    finally:
        del os.environ["ATTACKED_KEY"]
        for one in listeners:
            one.shutdown(socket.SHUT_RDWR)
            one.close()


def _hand_out(listener: socket.socket, secret: str) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.sendall(secret.encode())


def attack(code: Code, places: Places, folder: Path) -> bool:
    """Whether a package got through, played in its sandbox."""
    folder.mkdir()
    (folder / "harmless.py").write_text(code.module())
    (folder / "places.json").write_text(json.dumps(dict(places.told)))
    try:
        env = IsolatedEnvironment(source(folder, "harmless:Harmless"))
    except (EnvironmentFailure, UsageError) as failure:
        return places.secret in str(failure) or "\x1b" in str(failure) or places.damage
    try:
        rollouts = _played(env)
    except WanderlustError as failure:
        return places.secret in str(failure) or places.damage
    finally:
        env.close()
    shown = "".join(pack(one).decode(errors="replace") for one in rollouts)
    wrong = any(one.status is not Status.ERROR and one.trajectories[0].score is None for one in rollouts)
    return wrong or places.secret in shown or places.told["proof"] in shown or places.damage


def _played(env: Environment) -> list[Rollout]:
    tasks, limits = list(iter_tasks(env, "eval")), Limits(timeout=ATTACK_SECONDS)
    env.limits = limits
    groups = asyncio.run(play_groups(env, tasks, Scripted(lambda messages, rng: "0")))
    return [one for group in groups for one in group.rollouts]


def controls_through(places: Places, folder: Path) -> tuple[int, int]:
    """How many attacks get the secret without isolation, of those that should: what the sandbox is compared with."""
    got = wanted = 0
    for name, code in CODES.items():
        if not code.control:
            continue
        wanted += 1
        target = folder / f"control-{wanted}"
        target.mkdir()
        (target / "harmless.py").write_text(code.module())
        (target / "places.json").write_text(json.dumps(dict(places.told)))
        command = [sys.executable, "-c", "import harmless; print(harmless.got())"]
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
        marker = Path(places.told["marker"])
        got += places.secret in done.stdout or (name == "writes outside" and marker.exists())
        marker.unlink(missing_ok=True)
    return got, wanted


def play_both(name: str) -> tuple[list[Group], list[Group]]:
    """The groups of an environment in this process, and of the same one isolated: a random player and the oracle."""
    point, played = declared(ENTRY_POINTS, name)[name], list[list[Group]]()
    isolated = IsolatedEnvironment(source(ROOT / "none", point.value, *([point.dist.name] if point.dist else [])))
    try:
        for env in (make_environment(point.value), isolated):
            tasks = list(islice(iter_tasks(env, "eval"), TASKS))
            policies = [Scripted(lambda messages, rng: rng.choice(["7", "crane", "hello", "<answer>7</answer>"]))]
            policies += [make() for name, make in players_of(env).items() if name == "oracle"]
            groups = [asyncio.run(play_groups(env, tasks, one, group_size=SAMPLES)) for one in policies]
            played.append([group for some in groups for group in some])
    finally:
        isolated.close()
    return played[0], played[1]


def differing(here: Sequence[Group], there: Sequence[Group]) -> int:
    """Rollouts whose stored bytes differ, the seconds and the places of failures aside."""
    bodies = [
        [pack(replace(one, seconds=0.0, failure=None)) for group in some for one in group.rollouts]
        for some in (here, there)
    ]
    return sum(one != other for one, other in zip(*bodies, strict=True))


def milliseconds_a_turn(folder: Path) -> tuple[float, float, float]:
    """Processor time a turn: in this process, and isolated here and there."""
    folder.mkdir()
    text = TALK.replace("EPISODES", str(EPISODES)).replace("TURNS", str(TURNS))
    (folder / "talk.py").write_text(text)
    sys.path.append(str(folder))
    inside, env = make_environment("talk:Talk"), IsolatedEnvironment(source(folder, "talk:Talk"))
    sys.path.remove(str(folder))
    (child,) = (one.launched.child for one in env.pool.channels)
    pids = _descendants(child.pid)

    def play(one: Environment) -> None:
        policy = Scripted(lambda messages, rng: "I say something here, and it is of some length. " * 4)
        asyncio.run(play_groups(one, list(iter_tasks(one, "eval")), policy, concurrency=16))

    figures = list[tuple[float, float, float]]()
    try:
        for _ in range(4):
            plain, here, there = (_spent(play, inside, []), *_two_sides(play, env, pids))
            figures.append((plain, here, there))
    finally:
        env.close()
    turns = EPISODES * TURNS / 1000
    return tuple(median(one[n] for one in figures[1:]) / turns for n in range(3))  # type: ignore[return-value]


def _spent(play: Callable[[Environment], None], env: Environment, pids: Sequence[int]) -> float:
    before = time.process_time() + _processor(pids)
    play(env)
    return time.process_time() + _processor(pids) - before


def _two_sides(play: Callable[[Environment], None], env: Environment, pids: Sequence[int]) -> tuple[float, float]:
    before = _processor(pids)
    here = _spent(play, env, [])
    return here, _processor(pids) - before


def _processor(pids: Sequence[int]) -> float:
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in pids)


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(word) for word in file.read_text().split()]
    return found


def index_of_many(place: Path) -> tuple[float, int]:
    """Milliseconds of a search among MANY, and bytes of the first page with its script."""
    listing, mark = Hub.open(place / "hub").find("sums"), public_key(place / "key")
    key, rng = Key(key=mark, fingerprint=fingerprint(mark)), Random(0)
    words = ["mail", "poker", "chess", "proofs", "code", "tools", "search", "grid", "letters", "plans"]

    def named(number: int) -> Listing:
        summary = f"{' '.join(rng.choices(words, k=8))} number {number}"
        entry = replace(listing.entry, name=f"made-{number:05}", summary=summary)
        return replace(listing, number=number, entry=entry)

    listings = tuple(named(number) for number in range(MANY))
    index = Index(title="Many", head="0" * 64, records=MANY + 1, keys=(key,), listings=listings, rankings=())
    signature = sign(canonical(index), place / "key", namespace=INDEX)
    signed = SignedIndex(format=1, index=index, by=key.fingerprint, signature=signature)
    (place / "many").mkdir()
    (place / "many" / INDEX_FILE).write_bytes(canonical(signed))
    hub, times = Hub.open(place / "many"), []
    for _ in range(5):
        began = time.process_time()
        hub.search("poker 9")
        times.append(time.process_time() - began)
    rows = [[one.entry.name, "0.1.0", one.entry.summary, "1.000", "0.000", "nothing found"] for one in listings]
    return 1000 * median(times), len(first_page("Many", rows, owner=key.fingerprint).encode()) + len(JAVASCRIPT)


def bars() -> Iterator[Bar]:
    """From publishing to figures, tampering, harmful packages, isolation's cost, and an index of many."""
    with tempfile.TemporaryDirectory(prefix="wanderlust-bars-") as name, own_folders(Path(name) / "own"):
        place = Path(name)
        seconds, note = from_publishing_to_figures(place)
        yield Bar(name="publish, add, eval elsewhere: wall", figure=seconds, bar=60, aim=20, unit="s", note=note)
        refused = refusals(place)
        note = ", ".join(f"{file} {count} of {TIMES}" for file, count in refused.items())
        worst = min(refused.values())
        what = "one changed byte, refused by add: the worst file"
        yield Bar(name=what, figure=worst, bar=TIMES, aim=TIMES, better="higher", note=note)
        milliseconds, size = index_of_many(place)
        what = f"search among {MANY:,}, processor time"
        yield Bar(name=what, figure=milliseconds, bar=100, aim=50, unit="ms")
        yield Bar(name="first page with its script", figure=size / 1000, bar=300, aim=100, unit="KB")
        shutil.rmtree(Path(os.environ["XDG_DATA_HOME"]))
        through = wheels_through(place)
        yield _through("harmful wheels that were added", through, of=len(WHEELS), note="refused, nothing left")
        yield from _code_bars(place)
        yield from _isolation_bars(place)


def _through(name: str, through: Sequence[str], *, of: int, note: str) -> Bar:
    shown = f"{of} tried; " + ("; ".join(through) if through else note)
    return Bar(name=name, figure=len(through), bar=0, aim=0, note=shown)


def _code_bars(place: Path) -> Iterator[Bar]:
    with attacked_places(Path(tempfile.mkdtemp(dir=place))) as places:
        got, wanted = controls_through(places, place)
        try:
            through = [
                name
                for number, (name, code) in enumerate(CODES.items())
                if attack(code, places, place / f"attack-{number}")
            ]
        except SandboxFailure as failure:
            yield Bar(name="harmful code that got through", figure=None, bar=0, aim=0, note=str(failure))
            return
    note = f"of the {wanted} that only read or write, {got} get through without isolation"
    yield _through("harmful code that got through", through, of=len(CODES), note=note)


def _isolation_bars(place: Path) -> Iterator[Bar]:
    counts, total = dict[str, int](), 0
    for name in SAME:
        here, there = play_both(name)
        total += sum(len(group.rollouts) for group in here)
        counts[name] = differing(here, there)
    note = f"{total:,} rollouts of {len(SAME)} environments, oracle and random"
    yield Bar(name="rollouts that differ when isolated", figure=sum(counts.values()), bar=0, aim=0, note=note)
    plain, inside, outside = milliseconds_a_turn(place / "talk")
    note = f"{inside:.3f} ms here and {outside:.3f} ms there; {plain:.3f} ms in one process"
    what = "isolated: processor time a turn"
    yield Bar(name=what, figure=inside + outside, bar=1, aim=0.4, unit="ms", note=note)
