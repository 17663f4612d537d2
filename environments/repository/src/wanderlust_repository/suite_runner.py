"""Runs in the sandbox: a package's test suite by pytest, and what mining and judging ask about the folder.

`judge` supervises: it closes itself to the other processes of its user (PR_SET_DUMPABLE), starts pytest in a process of
its own, and says per test what that process reported over a pipe. `mutants` forks one process per mutant from an
interpreter that has pytest and the suite's libraries imported. Imports nothing of ours: this file's text is sent.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from typing import Any

ROOT, SITE = "/work/repo", "/work/site"
PR_SET_DUMPABLE = 4
SKIPPED_FOLDERS = {"__pycache__", ".pytest_cache", ".hypothesis", ".git"}
FLAGS = ["-s", "-S", "-P", "-B"]
LIMIT_REPORT_BYTES = 64 << 20
"""Most bytes that a test process may report."""


class Reporter:
    """A pytest plugin that selects tests by id and writes one line per finished test."""

    def __init__(self, report: int, asked: dict[str, Any]):
        self.report, self.token = report, asked["token"]
        self.ids = None if asked.get("ids") is None else set(asked["ids"])
        self.phases: dict[str, list[Any]] = {}
        self.current = ""
        self.called: dict[Any, set[str]] = defaultdict(set)
        self.known_code: dict[Any, Any] = {}

    def write(self, kind: str, name: str, outcome: str = "", *, seconds: float = 0.0, message: str = "") -> None:
        line = json.dumps([self.token, kind, name, outcome, round(seconds, 4), message[:300]])
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        while data:
            data = data[os.write(self.report, data) :]

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        if self.ids is not None:
            gone = [one for one in items if one.nodeid not in self.ids]
            items[:] = [one for one in items if one.nodeid in self.ids]
            config.hook.pytest_deselected(items=gone)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write("collect", report.nodeid, "failed", message=last_line(report))

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.current = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        phases = self.phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when != "teardown":
            return
        del self.phases[report.nodeid]
        outcome, bad = "passed", [one for one in phases if one.failed]
        if bad:
            outcome = "failed"
        elif any(one.skipped for one in phases) or len(phases) != 3:
            outcome = "skipped"
        elif any(hasattr(one, "wasxfail") for one in phases):
            outcome = "xpassed"
        seconds = sum(one.duration for one in phases)
        message = last_line(bad[0]) if bad else ""
        self.write("test", report.nodeid, outcome, seconds=seconds, message=message)

    def trace(self, frame: Any, event: str, argument: Any) -> None:
        """Note which functions of the folder each test calls."""
        code = frame.f_code
        key = self.known_code.get(code)
        if key is None:
            name = code.co_filename
            key = (name[len(ROOT) + 1 :], code.co_firstlineno) if name.startswith(ROOT + "/") else False
            self.known_code[code] = key
        if key and self.current:
            self.called[key].add(self.current)


def last_line(report: Any) -> str:
    """The exception's own line, without the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[0] if crash is not None else lines[-1]


def prepare_paths(asked: dict[str, Any]) -> None:
    """Folders of modules, for this process and for what it starts."""
    paths = [os.path.join(ROOT, one) if one else ROOT for one in asked["roots"]] + [SITE]
    sys.path[:0] = [*paths, *([ROOT] if ROOT not in paths else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.chdir(ROOT)


def run_pytest(report: int, asked: dict[str, Any]) -> None:
    """Run the asked tests, and write their results to the pipe."""
    import pytest  # the one of the site folder

    reporter = Reporter(report, asked)
    settings = ("addopts=", "filterwarnings=", "required_plugins=")
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", ROOT, "--continue-on-collection-errors", "--tb=line"]
    words += ["--no-header", "--no-summary", *(word for one in settings for word in ("-o", one))]
    words += ["--collect-only"] if asked.get("collect") else []
    words += [f"--maxfail={asked['most'] + 1}"] if asked.get("most") is not None else []
    if asked.get("trace"):
        sys.settrace(reporter.trace)
    code = pytest.main([*words, *asked["files"]], plugins=[reporter])
    sys.settrace(None)
    report_calls(reporter, asked)
    reporter.write("end", str(int(code)))


def report_calls(reporter: Reporter, asked: dict[str, Any]) -> None:
    """Write which tests call which functions, and which modules are loaded, where that was asked for."""
    if asked.get("trace"):
        for (path, line), tests in sorted(reporter.called.items()):
            reporter.write("calls", f"{path}:{line}")
            for test in sorted(tests):
                reporter.write("by", test)
    if asked.get("modules"):
        for name, module in sorted(sys.modules.items()):
            place = getattr(module, "__file__", None) or ""
            if place and not place.startswith(ROOT + "/"):
                reporter.write("module", name)


def silence() -> None:
    """Let standard streams lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def serve_child() -> None:
    """The process of the tests: what to run comes over standard input, results go to the pipe named there."""
    asked = json.loads(sys.stdin.buffer.read())
    prepare_paths(asked)
    sys.dont_write_bytecode = not asked.get("bytecode")
    silence()
    run_pytest(asked["report"], asked)
    os._exit(0)


def read_lines(pipe: int, deadline: float) -> tuple[bytes, bool]:
    """All that comes over a pipe before the deadline, and whether it ended by itself."""
    data = bytearray()
    while len(data) < LIMIT_REPORT_BYTES:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return bytes(data), False
        more = os.read(pipe, 1 << 16)
        if not more:
            return bytes(data), True
        data += more
    return bytes(data), False


def parse_report(data: bytes, token: str) -> dict[str, Any]:
    """Results by test; a test that was reported twice counts as `twice`. Lines without the token are counted."""
    tests: dict[str, Any] = {}
    result: dict[str, Any] = {"tests": tests, "collect": {}, "calls": {}, "modules": [], "ended": None, "foreign": 0}
    calls: list[str] = []
    for line in data.splitlines():
        try:
            said, kind, name, outcome, seconds, message = json.loads(line)
        except (ValueError, TypeError):
            said = kind = name = outcome = seconds = message = ""
        if said != token:
            result["foreign"] += 1
        elif kind == "test":
            tests[name] = ["twice", 0.0, ""] if name in tests else [outcome, seconds, message]
        elif kind == "collect":
            result["collect"][name] = message
        elif kind == "calls":
            calls = result["calls"][name] = []
        elif kind == "by":
            calls.append(name)
        elif kind == "module":
            result["modules"].append(name)
        elif kind == "end":
            result["ended"] = None if result["ended"] is not None else name
    return result


def run_child(source: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run tests in a fresh interpreter, bounded in time; all its processes of the group are dead afterwards."""
    mine, theirs = os.pipe()
    token = os.urandom(16).hex()
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER", "TERM") if name in os.environ}
    env |= {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "" if asked.get("plugins") else "1"}
    env |= {"TZ": "UTC", "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis"}
    if not env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]:
        del env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
    words = [sys.executable, *FLAGS, "-c", f"{source}\nserve_child()"]
    body = json.dumps(asked | {"token": token, "report": theirs}).encode()
    nowhere, began = subprocess.DEVNULL, time.monotonic()
    child = subprocess.Popen(
        words, stdin=-1, stdout=nowhere, stderr=nowhere, env=env, pass_fds=(theirs,), start_new_session=True, cwd="/"
    )
    os.close(theirs)
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(body)
            child.stdin.close()
    data, ended = read_lines(mine, began + asked["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    os.close(mine)
    return parse_report(data, token) | {"timed_out": not ended, "seconds": round(time.monotonic() - began, 3)}


def close_to_others() -> None:
    """Keep other processes of this user from this one's memory and files."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot be closed to the tests")


def write_modules(modules: dict[str, str | None]) -> None:
    """Put the judged modules in place, None for those that are gone; bytecode of what was there before is removed."""
    for path, text in modules.items():
        place = os.path.join(ROOT, path)
        cache, stem = os.path.join(os.path.dirname(place), "__pycache__"), os.path.basename(path).removesuffix(".py")
        for name in os.listdir(cache) if os.path.isdir(cache) else []:
            if name.startswith(f"{stem}."):
                os.unlink(os.path.join(cache, name))
        if text is None:
            os.unlink(place)
        else:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(base64.b64decode(text))


def judge(source: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run the tests; where all `must` have passed, run the sentinels: tests changed so that they must fail."""
    close_to_others()
    write_modules(asked.get("modules_of_agent", {}))
    main = run_child(source, asked)
    result: dict[str, Any] = {"main": main, "sentinels": None}
    passed = {name for name, one in main["tests"].items() if one[0] == "passed"}
    if asked.get("sentinels") and main["ended"] is not None and passed >= set(asked["must"]):
        for path, text in asked["sentinels"]["files"].items():
            with open(os.path.join(ROOT, path), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        again = {"ids": asked["sentinels"]["ids"], "files": [*asked["sentinels"]["files"]]}
        result["sentinels"] = run_child(source, asked | again)
    return result


def run_mutants(source: str, asked: dict[str, Any]) -> None:
    """Print one line per mutant: its failing tests, from a process forked for it."""
    prepare_paths(asked)
    sys.dont_write_bytecode = True
    for name in asked["modules"]:
        if name not in sys.modules:
            with contextlib.suppress(ImportError, AttributeError, RuntimeError, ValueError, TypeError, OSError):
                importlib.import_module(name)
    for number, mutant in enumerate(asked["mutants"]):
        place = os.path.join(ROOT, mutant["path"])
        with open(place, "rb") as file:
            before = file.read()
        with open(place, "wb") as file:
            file.write(mutant["text"].encode())
        os.utime(place, (2_000_000_000 + number, 2_000_000_000 + number))  # no cached bytecode is of this time
        try:
            result = run_forked(asked | mutant)
        finally:
            with open(place, "wb") as file:
                file.write(before)
            os.utime(place, (0, 0))
        tests = {name: one[0] for name, one in result["tests"].items() if one[0] != "passed"}
        line = {"failed": tests, "count": len(result["tests"]), "timed_out": result["timed_out"]}
        print(json.dumps(line | {"ended": result["ended"], "seconds": result["seconds"]}), flush=True)


def run_forked(asked: dict[str, Any]) -> dict[str, Any]:
    """Run tests in a fork of this process."""
    mine, theirs = os.pipe()
    token, began = os.urandom(16).hex(), time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(mine)
            silence()
            run_pytest(theirs, asked | {"token": token})
        finally:
            os._exit(0)
    os.close(theirs)
    data, ended = read_lines(mine, began + asked["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(mine)
    return parse_report(data, token) | {"timed_out": not ended, "seconds": round(time.monotonic() - began, 3)}


def list_differences(asked: dict[str, Any]) -> dict[str, Any]:
    """How the folder differs from the given digests: paths that are changed, new, gone, or no regular files."""
    expected, seen = asked["digests"], set()
    found: dict[str, Any] = {"changed": [], "new": [], "gone": [], "irregular": []}
    for folder, folders, files in os.walk(ROOT):
        links = [one for one in folders if os.path.islink(os.path.join(folder, one))]
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS - set(links))
        for name in sorted([*files, *links]):
            place = os.path.join(folder, name)
            path = os.path.relpath(place, ROOT)
            seen.add(path)
            if os.path.islink(place) or not os.path.isfile(place):
                found["irregular"].append(path)
                continue
            try:
                with open(place, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                found["irregular"].append(path)
                continue
            if path not in expected:
                found["new"].append(path)
            elif digest != expected[path]:
                found["changed"].append(path)
    found["gone"] = sorted(set(expected) - seen)
    return {kind: [len(paths), paths[: asked["most"]]] for kind, paths in found.items()}


class CopySearch:
    """Finds sources of which half of the lines are in a file of the same name elsewhere."""

    def __init__(self, sources: list[str]):
        self.wanted: dict[str, list[str]] = defaultdict(list)
        self.lines: dict[str, set[bytes]] = {}
        self.found: set[str] = set()
        for path in sources:
            self.wanted[os.path.basename(path)].append(path)
            with open(os.path.join(ROOT, path), "rb") as file:
                self.lines[path] = {line.strip() for line in file.read().splitlines() if len(line.strip()) > 8}

    def compare(self, name: str, text: bytes) -> None:
        theirs = {line.strip() for line in text.splitlines()}
        for path in self.wanted[name]:
            if len(self.lines[path]) >= 5 and len(self.lines[path] & theirs) * 2 >= len(self.lines[path]):
                self.found.add(path)

    def look_at(self, place: str) -> None:
        """Compare a file, or the files of an archive."""
        name = os.path.basename(place)
        if name in self.wanted:
            with open(place, "rb") as file:
                self.compare(name, file.read())
        elif name.endswith((".whl", ".zip", ".egg")) and os.path.isfile(place):
            with zipfile.ZipFile(place) as archive:
                for one in archive.namelist():
                    if os.path.basename(one) in self.wanted:
                        self.compare(os.path.basename(one), archive.read(one))


def find_copies(asked: dict[str, Any]) -> list[str]:
    """Sources of which this system, or the site folder, has a readable copy."""
    search = CopySearch(asked["sources"])
    for top in (SITE, "/usr/lib", "/usr/local/lib", "/usr/share"):
        for folder, _, files in os.walk(top):
            for name in files:
                with contextlib.suppress(OSError, zipfile.BadZipFile):
                    search.look_at(os.path.join(folder, name))
    return sorted(search.found)


def main() -> None:
    """Do what standard input asks for; the answer is one line behind the nonce, which stands in no argument."""
    asked = json.loads(sys.stdin.buffer.read())
    source, nonce = asked.pop("source"), asked.pop("nonce")
    if asked["do"] == "mutants":
        run_mutants(source, asked)
        return
    if asked["do"] == "differences":
        answer: Any = list_differences(asked)
    elif asked["do"] == "copies":
        answer = find_copies(asked)
    elif asked["do"] == "version":
        answer = list(sys.version_info[:3])
    else:
        answer = judge(source, asked)
    print(nonce + json.dumps(answer))
