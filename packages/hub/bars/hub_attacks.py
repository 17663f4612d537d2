"""Packages that a hub must not let through: wheels that are to be refused, and code that is to find nothing.

A wheel is signed as its publisher would, without the gate. Code runs in the process of an isolated environment, and
tells what it got in its first message. An attack is through when a secret of this machine is in a rollout, a file of
this machine has changed, or this process does not go on with figures or a failure of the environment.
"""

from __future__ import annotations

import io
import stat
import textwrap
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wanderlust_hub.entry import HubEntry, Record, StoredFile, canonical
from wanderlust_hub.index import CARD, CODE, DATA
from wanderlust_hub.permissions import PERMISSIONS_FILE, Permissions
from wanderlust_hub.publishing import Change, change
from wanderlust_hub.signing import fingerprint, public_key

MODULE = """\
from wanderlust import Environment, Scripted, Task, user

class Harmless(Environment):
    def tasks(self, split="train"):
        return [Task(id=f"{split}-{n}", prompt=(user(f"Say {n}."),), answer=str(n)) for n in range(2)]

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content == episode.task.answer))

    def oracle(self, task):
        return Scripted([task.answer])
"""
METADATA = "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0.0\nSummary: Harmless.\n"
INFO = "harmless-1.0.0.dist-info"
ENTRY_POINTS = "[wanderlust.environments]\nharmless = harmless:Harmless\n"
HUGE = (1 << 28) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel and its entry, which may say other things."""

    files: Sequence[tuple[str, bytes]] = ()
    """Further files."""
    metadata: str = METADATA
    entry_points: str = ENTRY_POINTS
    entry: Mapping[str, object] = field(default_factory=dict)
    """What the entry says otherwise."""
    change: Callable[[bytes], bytes] = lambda body: body
    """What is done to the file at last."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Type and mode of members."""

    def body(self) -> bytes:
        """The file."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            members = [("harmless.py", MODULE.encode()), (f"{INFO}/METADATA", self.metadata.encode())]
            members += [(f"{INFO}/entry_points.txt", self.entry_points.encode()), (f"{INFO}/RECORD", b"")]
            for name, content in [*members, *self.files]:
                info = zipfile.ZipInfo(name)
                info.external_attr = self.modes.get(name, stat.S_IFREG | 0o644) << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
        return self.change(out.getvalue())


def publish_unchecked(wheel: Wheel, *, hub: Path, key: Path) -> HubEntry:
    """Sign a wheel as it is: no gate, and the entry says what its publisher likes."""
    body, card, data = wheel.body(), b'{"ok":true}', b""
    said = HubEntry(
        name="harmless",
        version="1.0.0",
        summary="Harmless.",
        licence="",
        environment="harmless",
        requires=(),
        permissions=Permissions(),
        code=StoredFile.of(body),
        data=StoredFile.of(data),
        card=StoredFile.of(card),
        tasks={},
        oracle=1.0,
        chance=0.0,
        verdict="nothing found",
    )
    entry = replace(said, **wheel.entry)  # type: ignore[arg-type]
    record = Record(number=0, previous="", action="publish", by=fingerprint(public_key(key)), entry=entry)
    change(hub, Change(record=record, files={CODE: body, CARD: card, DATA: data}), key=key)
    return entry


def _encrypted(body: bytes) -> bytes:
    """Mark every member as encrypted, in both places."""
    changed = bytearray(body)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = changed.find(mark)
        while at >= 0:
            changed[at + offset] |= 1
            at = changed.find(mark, at + 4)
    return bytes(changed)


def _renamed(before: str, after: str) -> Callable[[bytes], bytes]:
    """Another name of the same length, which a library would not write."""
    return lambda body: body.replace(before.encode(), after.encode())


def _wider(**asked: object) -> bytes:
    return canonical(replace(Permissions(), **asked))  # type: ignore[arg-type]


REQUIRES = METADATA + "Requires-Dist: {}\n"
WHEELS: Mapping[str, Wheel] = {
    "path with ..": Wheel(files=[("../escaped.py", b"")]),
    "path with .. inside": Wheel(files=[("harmless/../../escaped.py", b"")]),
    "absolute path": Wheel(files=[("/tmp/escaped.py", b"")]),
    "backslashes": Wheel(files=[("a__b__escaped.py", b"")], change=_renamed("a__b__escaped.py", "..\\..\\escaped.py")),
    "drive letter": Wheel(files=[("C:/escaped.py", b"")]),
    "control character": Wheel(files=[("esc\x1b[2J.py", b"")]),
    "overlong path": Wheel(files=[("a/" * 200 + "b.py", b"")]),
    "symbolic link": Wheel(files=[("link", b"/etc/passwd")], modes={"link": stat.S_IFLNK | 0o777}),
    "device": Wheel(files=[("null", b"")], modes={"null": stat.S_IFCHR | 0o666}),
    "named pipe": Wheel(files=[("pipe", b"")], modes={"pipe": stat.S_IFIFO | 0o666}),
    ".pth file": Wheel(files=[("harmless.pth", b"import os; os.system('true')")]),
    "sitecustomize": Wheel(files=[("sitecustomize.py", b"")]),
    "usercustomize": Wheel(files=[("usercustomize/__init__.py", b"")]),
    "shadows wanderlust": Wheel(files=[("wanderlust/errors.py", b"")]),
    "shadows a library": Wheel(files=[("msgspec/__init__.py", b"")]),
    "shadows Python": Wheel(files=[("json.py", b"")]),
    "script named wander": Wheel(files=[("harmless-1.0.0.data/scripts/wander", b"#!python\n")]),
    "files of the system": Wheel(files=[("harmless-1.0.0.data/data/etc/profile.d/x.sh", b"")]),
    "zip bomb": Wheel(files=[("zeros", bytes(HUGE))]),
    "too many files": Wheel(files=[(f"many/{n}", b"") for n in range(10_100)]),
    "two files of one name": Wheel(files=[("Harmless.py", b"")]),
    "encrypted": Wheel(change=_encrypted),
    "no archive": Wheel(change=lambda body: b"MZ" + body[2:300]),
    "truncated": Wheel(change=lambda body: body[:-30]),
    "no entry point": Wheel(entry_points=""),
    "two entry points": Wheel(
        entry_points=ENTRY_POINTS.replace("harmless =", "kuhn =") + "wordle = harmless:Harmless\n"
    ),
    "other name inside": Wheel(metadata=METADATA.replace("harmless", "wordle")),
    "other version inside": Wheel(metadata=METADATA.replace("1.0.0", "9.0.0")),
    "hidden requirement": Wheel(metadata=REQUIRES.format("numpy")),
    "hidden permission": Wheel(files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(network=("example.org:443",)))]),
    "entry asks for less": Wheel(files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(secrets=("SOME_KEY",)))]),
    "asks for /etc": Wheel(
        files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(files=("/etc/shadow",)))],
        entry={"permissions": Permissions(files=("/etc/shadow",))},
    ),
    "asks for keys of SSH": Wheel(
        files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(files=("/home/me/.ssh",)))],
        entry={"permissions": Permissions(files=("/home/me/.ssh",))},
    ),
    "asks for LD_PRELOAD": Wheel(
        files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(secrets=("LD_PRELOAD",)))],
        entry={"permissions": Permissions(secrets=("LD_PRELOAD",))},
    ),
    "asks for the GPU": Wheel(
        files=[(f"{INFO}/{PERMISSIONS_FILE}", _wider(gpu=True))], entry={"permissions": Permissions(gpu=True)}
    ),
    "requirement from an address": Wheel(
        metadata=REQUIRES.format("evil-name-nobody-has @ https://example.org/evil.whl"),
        entry={"requires": ("evil-name-nobody-has @ https://example.org/evil.whl",)},
    ),
    "name of a ready-made environment": Wheel(
        metadata=METADATA.replace("harmless", "wordle"), entry={"name": "wordle"}, entry_points=ENTRY_POINTS
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What a package does when it is used; `got` is what it tells."""

    body: str
    """Statements of `attack`, which returns what it got."""
    control: bool = False
    """Whether it gets the secret where nothing isolates it, which is checked."""
    at: str = "run"
    """`import`, `tasks` or `run`."""

    def module(self) -> str:
        """The package's only module."""
        body = textwrap.indent(textwrap.dedent(self.body).strip(), "    ")
        text = f"import os, sys, json, socket, time, signal, subprocess, pathlib\n\ndef attack(PLACES):\n{body}\n\n"
        text += "PLACES = json.loads(pathlib.Path(__file__).with_name('places.json').read_text())\n"
        text += "def got():\n    try:\n        return str(attack(PLACES))\n"
        text += "    except BaseException as error:\n        return type(error).__name__\n\n"
        if self.at == "import":
            text += "got()\n"
        begin = "        got()\n" if self.at == "tasks" else ""
        text += MODULE.replace("        return [", f"{begin}        return [", 1)
        if self.at == "run":
            text = text.replace(
                "        said = await episode.agent.act(*",
                "        told = user(got())\n        said = await episode.agent.act(told, *",
            )
        return text


READ = "return pathlib.Path(PLACES['{}']).read_text()"
PIPE = """
for fd in range(3, 40):
    try:
        if os.readlink(f'/proc/self/fd/{fd}').startswith('pipe:'):
            os.write(fd, %s)
    except OSError:
        pass
return 'written'
"""
CODES: Mapping[str, Code] = {
    "reads a file in the home folder": Code(body=READ.format("home"), control=True),
    "reads a file in /tmp": Code(body=READ.format("temporary"), control=True),
    "reads the key of the hub": Code(body=READ.format("key"), control=True),
    "reads another package": Code(body=READ.format("package"), control=True),
    "reads by a link": Code(body="os.symlink(PLACES['home'], 'link')\nreturn open('link').read()", control=True),
    "reads a variable": Code(body="return os.environ.get('ATTACKED_KEY')", control=True),
    "reads the parent's variables": Code(
        body="""
        parts = []
        for entry in pathlib.Path('/proc').glob('[0-9]*/environ'):
            try:
                parts.append(entry.read_text(errors='replace'))
            except OSError:
                pass
        return ''.join(parts)
        """,
        control=True,
    ),
    "reads the host's command lines": Code(
        body="return ''.join(p.read_text(errors='replace') for p in pathlib.Path('/proc').glob('[0-9]*/cmdline'))"
    ),
    "looks through the root folder": Code(
        body="return ''.join(map(str, pathlib.Path(PLACES['home']).parent.iterdir())) + open(PLACES['home']).read()"
    ),
    "goes up by /proc/1/root": Code(body="return open('/proc/1/root' + PLACES['home']).read()"),
    "goes up by an open file": Code(
        body="""
        for fd in os.listdir('/proc/self/fd'):
            try:
                return open(f'/proc/self/fd/{fd}/../../..' + PLACES['home']).read()
            except OSError:
                pass
        """
    ),
    "connects to this machine": Code(
        body="s = socket.create_connection(('127.0.0.1', PLACES['port']), 2)\nreturn s.recv(100).decode()", control=True
    ),
    "connects to a Unix socket": Code(
        body="s = socket.socket(socket.AF_UNIX)\ns.connect(PLACES['unix'])\nreturn s.recv(100).decode()", control=True
    ),
    "connects to an abstract socket": Code(
        body="s = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + PLACES['abstract'])\nreturn s.recv(100).decode()",
        control=True,
    ),
    "connects to the internet": Code(body="s = socket.create_connection(('1.1.1.1', 53), 2)\nreturn PLACES['proof']"),
    "asks for a name": Code(body="return PLACES['proof'] if socket.getaddrinfo('example.org', 443) else ''"),
    "opens a raw socket": Code(body="socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nreturn PLACES['proof']"),
    "writes outside": Code(body="pathlib.Path(PLACES['marker']).write_text('x')", control=True),
    "writes into its own installation": Code(body="pathlib.Path(PLACES['package']).write_text('x')"),
    "writes into the cache of hubs": Code(body="pathlib.Path(PLACES['cache']).write_text('x')"),
    "changes wanderlust": Code(
        body="import wanderlust.errors as e\nopen(e.__file__, 'a').write('# changed')\nreturn PLACES['proof']"
    ),
    "replaces the engine": Code(
        body="""
        import wanderlust.runner.engine as engine, wanderlust_hub.wire as wire
        engine.finite_score = lambda score: score
        wire.pack = lambda frame: b''
        return 'replaced'
        """
    ),
    "kills everybody": Code(body="os.kill(-1, signal.SIGKILL)"),
    "kills its parent": Code(body="os.kill(os.getppid(), signal.SIGKILL)\nos.kill(PLACES['pid'], signal.SIGKILL)"),
    "stops its parent": Code(body="os.kill(PLACES['pid'], signal.SIGSTOP)\nreturn PLACES['proof']"),
    "traces its parent": Code(
        body="import ctypes\nreturn PLACES['proof'] if ctypes.CDLL(None).ptrace(16, PLACES['pid'], 0, 0) == 0 else ''"
    ),
    "becomes root": Code(body="os.setuid(0)\nreturn PLACES['proof']"),
    "makes a namespace": Code(
        body="import ctypes\nreturn PLACES['proof'] if ctypes.CDLL(None).unshare(0x10020000) == 0 else ''"
    ),
    "mounts": Code(
        body="""
        import ctypes
        return PLACES['proof'] if ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0 else ''
        """
    ),
    "makes a device": Code(body="os.mknod('disk', 0o60666, os.makedev(8, 0))\nreturn PLACES['proof']"),
    "forks without end": Code(body="while True:\n    if os.fork() == 0:\n        time.sleep(30)"),
    "starts a process that stays": Code(
        body="subprocess.Popen(['sh', '-c', 'sleep 3217'], start_new_session=True)\nreturn 'started'"
    ),
    "fills the disk": Code(
        body="with open('big', 'wb') as f:\n    while True:\n        f.write(bytes(1 << 24))", control=False
    ),
    "takes all memory": Code(body="kept = []\nwhile True:\n    kept.append(bytearray(b'x') * (1 << 26))"),
    "prints without end": Code(body="for _ in range(2000):\n    print('x' * 10_000)\n    sys.stderr.write('y' * 100)"),
    "writes garbage into the protocol": Code(body=PIPE % "b'garbage' * 100"),
    "announces a huge frame": Code(body=PIPE % "b'\\xff' * 8"),
    "sends deep JSON": Code(body=PIPE % "(60_000).to_bytes(4, 'big') + b'[' * 60_000"),
    "sends frames nobody asked for": Code(
        body=PIPE % "b''.join(len(b).to_bytes(4, 'big') + b for b in [b'{\"kind\":\"ended\",\"number\":77}'] * 30_000)"
    ),
    "answers for other episodes": Code(
        body=PIPE % "b''.join(b'\\0\\0\\0\\x1d' + b'{\"kind\":\"value\",\"number\":%03d}' % n for n in range(100, 200))"
    ),
    "closes its pipes": Code(body="os.closerange(3, 40)"),
    "ends at once": Code(body="os._exit(0)", at="import"),
    "ends when it lists tasks": Code(body="os._exit(0)", at="tasks"),
    "ends in an episode": Code(body="os._exit(0)"),
    "raises SystemExit": Code(body="import threading\nthreading.Thread(target=sys.exit).start()\nraise SystemExit(3)"),
    "never ends an episode": Code(body="while True:\n    pass"),
    "tells a terminal what to do": Code(body="raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')"),
}
