"""`wander train --preset reasoner`: the one preset that is a recipe of several runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.finetune_config import FinetuneConfig

if TYPE_CHECKING:
    from wanderlust_reasoning.reasoner_config import ReasonerConfig

PRESET = "reasoner"
OF_THE_MODEL = ("lora", "fresh_")
"""How settings begin that say what is trained, and so go to SFT as well."""


def reasoner_command(
    policy: str | None, given: Mapping[str, Any], *, out: Path | None, workers: int | None, json: bool
) -> None:
    """Run the recipe, or go on with it; `given` are the options of `wander train` that were named."""
    set_library_environment(one_thread=True)
    with needs_extra("reasoning"), needs_extra("train"):
        from wanderlust_reasoning.reasoner import train_reasoner
        from wanderlust_reasoning.reasoner_config import reasoner_folder
        from wanderlust_reasoning.reasoner_report import PAGE_FILE, PICTURE_FILE
    config = reasoner_config(policy, given)
    folder = out or reasoner_folder(config)
    with stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there") as progress:
        report = train_reasoner(config, out=folder, workers=workers, progress=progress)
    files = f"Report: {folder / PAGE_FILE}, picture: {folder / PICTURE_FILE}"
    lines = [*report.findings, files, f"--policy {report.student} takes the reasoner."]
    show_result(report.as_dict(), *lines, table=report.table(), json=json)


def reasoner_config(policy: str | None, given: Mapping[str, Any]) -> ReasonerConfig:
    """The recipe's configuration. Raises UsageError for options that it does not take."""
    with needs_extra("train"):
        from wanderlust_reasoning.reasoner_config import ReasonerConfig
    if wrong := [name for name in given if name.startswith("sft_") or name == "curriculum"]:
        option = wrong[0].replace("_", "-")
        raise UsageError(f"--preset {PRESET} has stages of its own for that: leave out --{option}")
    shared = {one.name for one in fields(FinetuneConfig) if one.name.startswith(OF_THE_MODEL)}
    rl = {name: value for name, value in given.items() if name != "seed"}
    return ReasonerConfig(
        policy=policy or FRESH_POLICY,
        seed=given.get("seed", 0),
        sft={name: value for name, value in rl.items() if name in shared},
        rl=rl,
    )
