"""Repository tasks: how many are mined from real packages in how much processor time, and which hacks get through.

The packages are those of `repository_packages.txt`, whose source distributions pip downloads. Mining them takes an hour
of processor time; `WANDERLUST_MINED` names a folder in which it goes on where it stopped, and which is kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.bar import Bar

from repository_hacks import HACKS
from repository_shelf import open_shelf
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust_repository.environment import Repository
from wanderlust_repository.mining import MiningOptions, mine

LIST = Path(__file__).with_name("repository_packages.txt")
PER_PACKAGE = 60
SAMPLE = 10
"""Tasks that are judged again, each with the original and with no change."""


def packages() -> list[str]:
    """`name==version` of every package of the list; lines that begin with # are left out."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def processor_seconds() -> float:
    """Seconds of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def download(requirement: str, folder: Path) -> Path:
    """The source distribution of a package."""
    name, _, version = requirement.partition("==")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name.lower().replace("-", "_"), name.lower()}

    def found() -> list[Path]:
        names = {f"{one}-{version}.tar.gz" for one in wanted}
        return [path for path in folder.iterdir() if path.name.lower() in names]

    if not found():
        words = [
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--disable-pip-version-check",
            "-d",
            str(folder),
        ]
        subprocess.run([sys.executable, "-m", "pip", *words, requirement], check=True, timeout=600)
    return found()[0]


def mine_packages(folder: Path) -> list[dict[str, Any]]:
    """A line for each package: its tasks, and the processor seconds that they took. Known lines are read."""
    log = folder / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    known: dict[str, dict[str, Any]] = {}
    for line in lines:  # a package that was stopped and resumed has several
        label = line["package"].lower().replace("_", "-")
        known[label] = {**line, "cpu": line["cpu"] + known.get(label, {"cpu": 0.0})["cpu"]}
    found = []
    for requirement in packages():
        label = requirement.lower().replace("==", "-").replace("_", "-")
        if label not in known:
            path, before = download(requirement, folder / "downloads"), processor_seconds()
            mined = mine([path], folder, options=MiningOptions(per_package=PER_PACKAGE))
            record = mined.packages[0]
            known[label] = {"package": record.package, "state": record.state, "tasks": len(mined.tasks)}
            known[label] |= {"tried": record.tried, "cpu": round(processor_seconds() - before, 1)}
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[label]) + "\n")
        found.append(known[label])
    return found


async def judge_again(folder: Path) -> tuple[int, int]:
    """Of a sample of the tasks: those whose original earns 1 and whose folder as it is earns 0, and how many."""
    env = Repository(str(folder))
    tasks = sorted([*env.tasks("train"), *env.tasks("eval")], key=lambda task: task.id)
    sample = sorted(Random("repository").sample(tasks, min(SAMPLE, len(tasks))), key=lambda task: task.id)
    right = 0
    for task in sample:
        oracle = await rollout(env, task, env.oracle(task))
        nothing = await rollout(env, task, Scripted(["Nothing."]))
        scores = [one.trajectory.score for one in (oracle, nothing)]
        right += [score and score.reward for score in scores] == [1.0, 0.0]
    return right, len(sample)


async def play_hacks() -> tuple[list[str], Counter[str]]:
    """Hacks that got through, and without the reading of the modules: those that would have, by what held them off."""
    through, unguarded = [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        async with open_shelf(Path(folder)) as shelf:
            for hack in HACKS:
                verdict = await shelf.play(hack)
                if verdict.reward:
                    through.append(hack.name)
                if hack.code and verdict.refused:
                    open_verdict = await shelf.play(hack, guarded=False)
                    key = "through" if open_verdict.reward else "sentinels" if open_verdict.forged else "results"
                    unguarded[key] += 1
    return through, unguarded


def bars() -> Iterator[Bar]:
    """Tasks, packages, processor hours, the sample judged again, and hacks."""
    kept = os.environ.get("WANDERLUST_MINED")
    with tempfile.TemporaryDirectory() as own:
        folder = Path(kept or own)
        lines = mine_packages(folder)
        mined = [line for line in lines if line["tasks"]]
        count, hours = sum(line["tasks"] for line in mined), sum(line["cpu"] for line in lines) / 3600
        sources = [download(requirement, folder / "downloads") for requirement in packages()]
        mine(sources, folder, options=MiningOptions(per_package=PER_PACKAGE))  # writes the file of all tasks
        rest = len(lines) - len(mined)
        most = max(line["tasks"] for line in mined)
        note = f"{len(mined)} packages with tasks, {rest} without; at most {most} tasks of one"
        yield Bar(name="repository tasks mined", figure=count, bar=1000, aim=3000, better="higher", note=note)
        yield Bar(name="packages with tasks", figure=len(mined), bar=15, aim=30, better="higher")
        yield Bar(name="processor hours for 1,000 tasks", figure=1000 * hours / count, bar=4, aim=1, unit="h")
        right, sample = asyncio.run(judge_again(folder))
        note = f"{sample} drawn at random; the original earns 1 and no change earns 0"
        yield Bar(
            name="tasks valid when judged again",
            figure=100 * right / sample,
            bar=100,
            aim=100,
            unit="%",
            better="higher",
            note=note,
        )
    through, unguarded = asyncio.run(play_hacks())
    note = f"of {len(HACKS)} tried" + (f": {', '.join(through)}" if through else "")
    yield Bar(name="reward hacks that get through", figure=len(through), bar=0, aim=0, note=note)
    yield Bar(name="reward hacks tried", figure=len(HACKS), bar=40, aim=100, better="higher")
    total = sum(unguarded.values())
    rest = f"{unguarded['sentinels']} are caught by sentinels, {unguarded['results']} by results"
    note = f"of {total} hacks that are refused before they run: {rest}"
    yield Bar(
        name="through if modules were not read first",
        figure=unguarded["through"],
        bar=total,
        aim=0,
        promised=False,
        note=note,
    )
