"""The command `wander` as people run it: real processes, real signals, real terminals, real broken files."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from rich.console import Console

from patience import PATIENCE, wait_until
from wanderlust.cli.main import main
from wanderlust.environments.tictactoe import TicTacToe
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.progress import Progress
from wanderlust.store.store import RunStore
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer

WANDER = (sys.executable, "-m", "wanderlust.cli.main")
DIGITS = "012\n345\n678"
TRAIN = ("--steps", "40", "--tasks-per-step", "2", "--group-size", "2", "--max-tokens", "2", "--workers", "1")


def wander(*words: object, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WANDER, *map(str, words)], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def inside(capsys: pytest.CaptureFixture[str], *words: object) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own, where the seconds of importing torch would buy nothing."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return subprocess.CompletedProcess(words, int(end.value.code or 0), said.out, said.err)


def refused(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """One line on stderr with all of `parts`, nothing on stdout."""
    assert (done.returncode, done.stdout) == (code, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("wander: ")
    assert all(part in line for part in parts), line


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the alphabet of the game and nothing else."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = fresh_tokenizer(["You are X.", "You start.", DIGITS, "<think>open</think><move>4</move>"] * 20)
    save_pretrained(
        folder,
        fresh_model(tokenizer, ModelShape(width=16, layers=1, heads=2, inner=16, positions=512), seed=0),
        tokenizer,
    )
    return folder


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["trian"], ["'trian'", "train"]),
        (["--bogus"], ["'--bogus'", "demo", "list"]),
        (["eval", "tictactoe", "--policy", "teacher", "--sampels", "2"], ["--sampels", "--samples"]),
        (["demo", "--zzzz"], ["--zzzz", "--quick", "--resume"]),
        (["eval", "tictactoe", "--policy", "teacher", "--num-tasks", "many"], ["--num-tasks", "many"]),
        (["eval", "tictactoe", "--policy", "teacher", "--num-tasks", "0"], ["--num-tasks", "0"]),
        (["eval", "tictactoe"], ["--policy"]),
        (["eval", "tictacto", "--policy", "teacher"], ["'tictacto'", "did you mean tictactoe"]),
        (["eval", "chess", "--policy", "teacher"], ["'chess'", "wander list", "package.module:Name"]),
        (["eval", "no.such:Thing", "--policy", "teacher"], ["no.such"]),
        (["eval", "json:dumps", "--policy", "teacher"], ["json:dumps"]),
        (["eval", "tictactoe", "--policy", "techer"], ["'techer'", "teacher"]),
        (["eval", "tictactoe", "--policy", "runs/demo-sed0"], ["'runs/demo-sed0'", "runs/demo-seed0"]),
        (["eval", "tictactoe", "--policy", "http://127.0.0.1:1"], ["--model"]),
        (["eval", "tictactoe", "--policy", "ftp://x"], ["ftp://x"]),
        (["eval", "tictactoe", "--policy", "teacher", "--greedy", "--temperature", "1"], ["--greedy"]),
        (["eval", "tictactoe", "--policy", "teacher", "--out", "runs"], ["runs", "another folder"]),
        (["play", "tictactoe", "--task-index", "-1"], ["-1"]),
        (["train", "tictactoe"], ["--policy", "--resume"]),
        (["train", "tictactoe", "--policy", "teacher"], ["teacher", "cannot be trained"]),
        (["train", "--resume", "runs/demo-seed0"], ["another recipe"]),
        (["train", "--resume", "runs/x", "--lr", "1"], ["--resume"]),
        (["demo", "--seed", "0"], ["runs/demo-seed0", "--resume", "--out"]),
        (["demo", "--resume", "runs/demo-seed"], ["runs/demo-seed", "runs/demo-seed0"]),
        (["demo", "--resume", "--quick"], ["--resume", "--quick"]),
        (["runs", "nowhere"], ["'nowhere'"]),
    ],
    ids=lambda value: " ".join(value) if value[0].strip("-") else None,
)
def test_wrong_calls_are_one_line_and_exit_2(
    words: list[str],
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs/demo-seed0"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"recipe": "DemoConfig", "config": {"seed": 0}}')
    before = sorted(tmp_path.rglob("*"))
    refused(inside(capsys, *words), 2, *parts)
    assert sorted(tmp_path.rglob("*")) == before


def test_every_help_page_works_without_torch(tmp_path: Path) -> None:
    code = """
import sys
for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy", "matplotlib"):
    sys.modules[name] = None
from wanderlust.cli.main import COMMANDS, build, command_names, main
app = build()
pages = 0
for name in ["", *sorted(command_names(app), key=lambda name: name not in COMMANDS)]:
    if name and name not in COMMANDS:
        sys.modules.pop("numpy", None)  # a package may need it
    for below in ["", *(command_names(app[name]) if name else ())]:
        pages += 1
        try:
            main([*filter(None, (name, below)), "--help"])
        except SystemExit as end:
            assert not end.code, (name, below, end.code)
print("pages:", pages)
sys.modules["numpy"] = None
try:
    main(["demo"])
except SystemExit as end:
    assert end.code == 2, end.code
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout.count("Usage: wander") == int(done.stdout.split()[-1]) > 60
    assert done.stderr.splitlines()[-1].endswith("install it with pip install 'wanderlust[train]'")
    assert not (tmp_path / "runs").exists()


def test_a_wrong_call_ends_its_process_with_2(tmp_path: Path) -> None:
    refused(wander("trian", cwd=tmp_path), 2, "'trian'", "train")


def test_lists_are_for_people_and_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "tictactoe" in inside(capsys, "list").stdout
    (row,) = [
        e for e in json.loads(inside(capsys, "list", "--json").stdout)["environments"] if e["name"] == "tictactoe"
    ]
    assert row["target"] == "wanderlust.environments.tictactoe:TicTacToe"
    assert "No runs" in inside(capsys, "runs").stdout
    assert json.loads(inside(capsys, "runs", "--json").stdout) == {"runs": []}


def test_the_teacher_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = wander("eval", "tictactoe", "--policy", "teacher", "--json", "--out", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["report"]["scored"] == 300
    against = body["by"]["opponent"]
    assert 0.8 < against["random"]["metrics"]["win"]["value"] < 0.97
    assert 0.6 < against["optimal"]["metrics"]["draw"]["value"] < 0.9
    assert against["optimal"]["metrics"]["win"]["value"] == 0
    with RunStore.read(tmp_path / "kept/rollouts.db") as store:
        assert store.counts() == {"eval": {"done": 300}}
    exact = inside(capsys, "eval", "tictactoe", "--policy", "teacher", "--exact", "--json")
    rows = {row["opponent"]: row for row in json.loads(exact.stdout)["exact"]}
    assert rows["random"]["win"] == pytest.approx(0.8945, abs=1e-4)
    assert rows["optimal"]["draw"] == pytest.approx(0.7579, abs=1e-4)
    table = inside(capsys, "eval", "tictactoe", "--policy", "random", "--num-tasks", "9").stdout
    assert "by opponent" in table
    assert "9 of 9" in table


def test_another_split_is_played_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("eval", "tictactoe", "--policy", "teacher", "-n", "3", "--split", "train", "--out", str(tmp_path / "run"))
    report = json.loads(inside(capsys, *words, "--json").stdout)
    assert all(row["task"].startswith("tictactoe-train-") for row in report["tasks"])
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["split"] == "train"
    refused(inside(capsys, *words[:6], "--split", "tarin"), 2, "no split 'tarin': one of train, eval")


def test_a_checkpoint_is_measured_and_a_damaged_one_is_named(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = inside(capsys, "eval", "tictactoe", "--policy", checkpoint, "--num-tasks", "3", "--max-tokens", "3")
    assert done.returncode == 0, done.stderr
    assert "3 of 3" in done.stdout
    assert "Traceback" not in done.stderr
    assert "it/s" not in done.stderr
    exact = inside(capsys, "eval", "tictactoe", "--policy", checkpoint, "--exact", "--json", "--max-tokens", "3")
    assert [row["win"] for row in json.loads(exact.stdout)["exact"]] == [0, 0, 0]
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    (broken / "model.safetensors").write_bytes(b"\x00" * 100)
    refused(inside(capsys, "eval", "tictactoe", "--policy", broken), 1, str(broken))
    (broken / "config.json").write_text("{")
    refused(inside(capsys, "play", "tictactoe", "--policy", broken), 1, str(broken))


def test_a_dead_endpoint_counts_in_no_figure(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{unused_port()}/v1"
    done = wander("eval", "tictactoe", "--policy", url, "--model", "m", "--num-tasks", "3", "--json", cwd=tmp_path)
    assert done.returncode == 1
    report = json.loads(done.stdout)["report"]
    assert (report["played"], report["scored"], report["failed"], report["rewards"]) == (3, 0, 3, {})
    assert "3 of 3 rollouts failed" in done.stderr
    assert "cannot connect" in done.stderr


def test_garbage_from_an_endpoint_counts_in_no_figure(tmp_path: Path) -> None:
    async def garbage(request: web.Request) -> web.Response:
        return web.Response(text="<html>\x1b[2J I am no model</html>")

    async def go() -> tuple[int | None, str, str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", garbage)
        async with TestServer(app) as server:
            words = ("eval", "tictactoe", "--policy", str(server.make_url("/v1")), "--model", "m", "--num-tasks", "3")
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*WANDER, *words, cwd=tmp_path, stdout=pipe, stderr=pipe)
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
            return process.returncode, out.decode(), err.decode()

    code, out, err = asyncio.run(go())
    assert code == 1
    assert "0 of 3" in out
    assert "3 of 3 rollouts failed" in err
    assert "not a chat completion" in err
    assert "\x1b" not in out + err


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, cwd: Path):
        ours, theirs = pty.openpty()
        self.file, self.seen = ours, ""
        self.process = subprocess.Popen(
            [*WANDER, *words], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def until(self, text: str) -> None:
        while text not in self.seen:
            assert select.select([self.file], [], [], PATIENCE)[0], self.seen
            self.seen += os.read(self.file, 4096).decode()

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self.file, text.encode())

    def end(self) -> int:
        code = self.process.wait(timeout=PATIENCE)
        os.close(self.file)
        return code


def test_a_person_plays_the_teacher_at_a_terminal(tmp_path: Path) -> None:
    game = Terminal("play", "tictactoe", "--policy", "teacher", cwd=tmp_path)
    game.until("> ")
    assert "You are O." in game.seen
    assert "X plays" in game.seen
    game.type("what?\n")
    game.until("> ")
    assert "Use the move tags." in game.seen
    game.type("\x04")  # Ctrl-D
    game.until("Reward of opponent: 0")
    assert "Ended: quit" in game.seen
    assert game.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_a_game_at_once(tmp_path: Path) -> None:
    game = Terminal("play", "tictactoe", cwd=tmp_path)
    game.until("> ")
    os.killpg(game.process.pid, signal.SIGINT)
    game.until("left the game")
    assert "Traceback" not in game.seen
    assert game.end() == 130


def test_a_whole_game_can_be_piped_in_and_kept(tmp_path: Path) -> None:
    moves = "\n".join(f"<think>t</think><move>{n}</move>" for n in (4, 0, 2, 6, 8, 1, 3))
    done = wander("play", "tictactoe", "--json", "--out", "kept", cwd=tmp_path, stdin=moves)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["state"]["turns"] >= 3
    assert body["rewards"]["agent"] == pytest.approx(body["rewards"]["agent"])
    with RunStore.read(tmp_path / "kept/rollouts.db") as store:
        assert store.counts() == {"play": {body["status"]: 1}}


class Stoppable:
    """A running command whose stderr is followed."""

    def __init__(self, *words: object, cwd: Path):
        command = [*WANDER, *map(str, words)]
        self.process = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def until(self, text: str) -> None:
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr), f"ended without saying {text!r}"

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[str, str]:
        """What it says after the signal, which the whole process group gets, as from a terminal."""
        os.killpg(self.process.pid, number)
        said = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 128 + number
        return said


def test_training_stops_at_once_and_says_how_to_go_on(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Stoppable("train", "tictactoe", "--policy", checkpoint, *TRAIN, "--out", "run", cwd=tmp_path)
    run.until("rl 1/40")
    out, err = run.stop()
    assert out == ""
    assert "resume with: wander train --resume run" in err
    assert "Traceback" not in err
    monkeypatch.chdir(tmp_path)
    listed: list[dict[str, Any]] = json.loads(inside(capsys, "runs", ".", "--json").stdout)["runs"]
    assert [(r["path"], r["recipe"], r["finished"]) for r in listed] == [("run", "train", False)]
    assert listed[0]["reached"].startswith("rl ")

    again = Stoppable("train", "--resume", "run", "--workers", "1", cwd=tmp_path)
    again.until("rl ")
    again.stop(signal.SIGTERM)

    kept = (tmp_path / "run/state.pt").read_bytes()
    for name, garbage in (("state.pt", kept[: len(kept) // 2]), ("rollouts.db", b"SQLite format 3\x00 no")):
        whole = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(garbage)
        done = inside(capsys, "train", "--resume", tmp_path / "run")
        assert (done.returncode, done.stdout) == (1, "")
        assert name in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        assert (tmp_path / "run" / name).read_bytes() == garbage
        (tmp_path / "run" / name).write_bytes(whole)


def test_ctrl_c_during_start_up_is_quiet(checkpoint: Path, tmp_path: Path) -> None:
    run = Stoppable("train", "tictactoe", "--policy", checkpoint, *TRAIN, "--out", "run", cwd=tmp_path)
    maps = Path(f"/proc/{run.process.pid}/maps")
    wait_until(lambda: "libtorch" in maps.read_text())  # it is being imported
    _, err = run.stop()
    assert "Traceback" not in err
    assert "stopped" in err
    assert not (tmp_path / "run/rollouts.db-journal").exists()


@pytest.mark.proof("kills")
def test_the_demo_stops_and_goes_on(tmp_path: Path) -> None:
    run = Stoppable("demo", "--quick", "--seed", "3", cwd=tmp_path)
    run.until("sft 1/")
    _, err = run.stop()
    folder = "runs/demo-quick-seed3"
    assert f"resume with: wander demo --resume {folder}" in err
    refused(wander("demo", "--quick", "--seed", "3", cwd=tmp_path), 2, folder, "--resume", "--out")
    again = Stoppable("demo", "--resume", cwd=tmp_path)
    again.until(f"resuming {folder}")
    again.until("teacher ")
    _, err = again.stop()
    assert f"wander demo --resume {folder}" in err


def test_progress_is_a_line_now_and_then_without_a_terminal() -> None:
    now, console = [0.0], Console(record=True, width=200, force_terminal=False, file=open(os.devnull, "w"))  # noqa: SIM115
    with Progress(console, clock=lambda: now[0], every=5.0) as progress:
        progress.log_step("sft", 300, of=300, metrics={})
        for step in range(1, 11):
            now[0] += 2.0
            progress.log_step(
                "rl",
                step,
                of=10,
                metrics={"reward": 0.5, "win": 0.25, "rollouts_per_s": 99.6, "frac_groups_with_signal": 0.5},
            )
        progress.log_step("eval", 10, of=10, metrics={"optimal/draw": 0.95, "optimal/loss": 0.05})
    console.file.close()
    lines = console.export_text().splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "sft 300/300",
        "rl 1/10",  # a stage that begins is shown, however soon after the line before
        "rl 4/10",
        "rl 7/10",
        "rl 10/10",
        "eval 10/10",
    ]
    assert (
        lines[2] == "rl 4/10  0:08 elapsed  0:12 left  99.6 episodes/s  reward 0.500  win/draw/loss 25/0/0  "
        "groups with non-zero advantage 50%"
    )
    assert lines[-1] == "eval 10/10  vs optimal: draw 95.0% loss 5.0%"


def test_tictactoe_offers_players_that_play_as_they_are_called() -> None:
    players = TicTacToe.players
    shares = {name: asyncio.run(TicTacToe().exact(make(), name=name)) for name, make in players.items()}
    by = {(row["policy"], row["opponent"]): row for rows in shares.values() for row in rows}
    assert by["optimal", "optimal"]["loss"] == 0
    assert by["random", "optimal"]["loss"] > 0.7
    assert by["teacher", "random"]["win"] > by["random", "random"]["win"]
