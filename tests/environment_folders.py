"""`make environments [ONLY=NAME]`: every folder of environments/ by itself, as who has only the core would use it.

In a copy of this Python with the core's wheel and no package beside it, each folder's wheel is installed, with those
of ours that it names as dependencies. Every name of it goes through `wander check`, its tests run outside of the
repository, and `wander hub publish` puts it into an empty hub. (Rewards that the folder calls flawed are to be refused,
and what needs settings is not checked.) `card.json` in the folder is what the gate said, and
is made anew where it is not current.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from project_files import ROOT

PACKAGES = {path.parent.name: path.parent for path in ROOT.glob("*/*/pyproject.toml")}
"""Folders of our packages, by their names without `wanderlust-`."""
NEEDS = "needs settings"
"""In the message about an environment that cannot be made without any."""
CARD = "card.json"


def main(names: list[str]) -> int:
    """Try the folders, and say what is wrong with each."""
    folders = [folder for folder in sorted((ROOT / "environments").iterdir()) if (folder / "pyproject.toml").is_file()]
    wrong = list[str]()
    with tempfile.TemporaryDirectory(prefix="wander-environments-") as scratch:
        place = Path(scratch)
        python = copy_of_python(place / "venv")
        wheels = {"core": build(ROOT, place / "wheels")}
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "key")], check=True)
        for folder in folders:
            if not names or folder.name in names:
                faults = try_folder(folder, python, wheels, place)
                print(f"{folder.name}: {'; '.join(faults) or 'OK'}", flush=True)
                wrong += [folder.name] if faults else []
    print(f"{len(folders)} folders, wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def copy_of_python(folder: Path) -> Path:
    """This virtual environment again, by hard links, without our packages."""
    shutil.copytree(sys.prefix, folder, symlinks=True, copy_function=os.link)
    for path in [*folder.glob("lib/*/site-packages/*wanderlust*"), *folder.glob("bin/wander*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder / "bin/python"


def build(folder: Path, out: Path) -> Path:
    """The wheel of a package, in a folder of its own."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out / folder.name)],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return next((out / folder.name).glob("*.whl"))


def try_folder(folder: Path, python: Path, wheels: dict[str, Path], place: Path) -> list[str]:
    """What is wrong with one folder; nothing, where it stands by itself."""
    whole = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project, flawed = whole["project"], whole["tool"].get("wanderlust", {}).get("flawed", ())
    ours = [folder.name, *(name for name in dependencies(project) if name in PACKAGES)]
    for name in ours:
        wheels.setdefault(name, build(PACKAGES[name], place / "wheels"))
    install(python, [wheels["core"], *(wheels[name] for name in ours)])
    faults = list[str]()
    for name in project["entry-points"]["wanderlust.environments"]:
        if name == folder.name and (folder / CARD).is_file():
            continue  # the gate is that of `wander hub publish`, which sees whether it has to run again
        said = run(python, "wanderlust.cli.main", "check", name, cwd=place)
        if name in flawed and not said.returncode:
            faults.append(f"wander check {name}: nothing found, in a reward with a flaw")
        elif said.returncode and name not in flawed and NEEDS not in said.stderr:
            faults.append(f"wander check {name}: {last_line(said)}")
    own = place / folder.name
    shutil.copytree(folder, own, ignore=shutil.ignore_patterns("__pycache__"))
    said = run(python, "pytest", "-q", "-m", "not proof", "-p", "no:cacheprovider", "tests", cwd=own)
    faults += [f"pytest: {last_line(said)}"] if said.returncode else []
    wheels.setdefault("hub", build(PACKAGES["hub"], place / "wheels"))
    install(python, [wheels["core"], *(wheels[name] for name in ours), wheels["hub"]])
    hub, key = place / f"hub-{folder.name}", str(place / "key")
    run(python, "wanderlust.cli.main", "hub", "init", str(hub), "--key", key, cwd=place)
    words = ("publish", str(hub), str(folder), "--key", key, "--card", str(folder / CARD))
    said = run(python, "wanderlust.cli.main", "hub", *words, cwd=place)
    faults += [f"wander hub publish: {last_line(said)}"] if said.returncode else []
    return faults


def dependencies(project: dict[str, Any]) -> list[str]:
    """Names of our packages that one needs, without `wanderlust-`."""
    return [found[1] for one in project["dependencies"] if (found := re.match(r"wanderlust-([\w-]+)", one))]


def install(python: Path, wheels: list[Path]) -> None:
    """Our packages in this copy are these, and no others."""
    for path in python.parent.parent.glob("lib/*/site-packages/*wanderlust*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    words = ["pip", "install", "-qq", "--no-deps", "--no-index", "--force-reinstall", *map(str, wheels)]
    subprocess.run([str(python), "-m", *words], check=True)


def run(python: Path, module: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A program of the copy, in a folder that is not the repository's."""
    return subprocess.run(
        [str(python), "-P", "-m", module, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )


def last_line(said: subprocess.CompletedProcess[str]) -> str:
    """What a program said last."""
    lines = (said.stderr.strip() or said.stdout.strip()).splitlines()
    return lines[-1] if lines else f"code {said.returncode}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
