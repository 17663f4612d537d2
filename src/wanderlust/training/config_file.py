"""Training configurations as TOML files, with the settings in sections."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, nearest_names

CONFIG_TOML = "config.toml"
"""File of a run's folder with every setting."""
FIRST_SETTING = {
    "model": "env",
    "sft": "sft_episodes",
    "rollout": "tasks_per_step",
    "algorithm": "algorithm",
    "labels": "label_estimator",
    "optimizer": "steps",
    "checkpoints": "eval_every",
    "engine": "engine",
    "run": "seed",
}
"""First setting of each section, in the order of TrainConfig's fields."""


def settings_by_section(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The settings of each section, from their names in TrainConfig's order; a subclass's own are in the last one."""
    starts = [names.index(first) for first in FIRST_SETTING.values()]
    ends = pairwise([*starts, len(names)])
    return {section: tuple(names[start:end]) for section, (start, end) in zip(FIRST_SETTING, ends, strict=True)}


def read_settings(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The settings in a TOML file, checked for their names, of which these are all.

    UsageError in one line, which names the file, when it cannot be read, and for sections and settings that are none.
    """
    try:
        body = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    sections = settings_by_section(names)
    section_of = {name: section for section, own in sections.items() for name in own}
    settings: dict[str, Any] = {}
    for section, values in body.items():
        if section not in sections:
            if section in section_of:
                raise UsageError(f"{path}: {section} is in no section: it belongs in [{section_of[section]}]")
            hint = nearest_names(section, [*sections], kind="sections")
            raise UsageError(f"{path}: there is no section [{section}]; {hint}")
        if not isinstance(values, Mapping):
            raise UsageError(f"{path}: {section} must be a section, [{section}] with settings below it")
        for name, value in values.items():
            if name not in sections[section]:
                known = section_of.get(name)
                hint = f"it belongs in [{known}]" if known else nearest_names(name, [*section_of], kind="settings")
                raise UsageError(f"{path}: there is no setting {name!r} in [{section}]; {hint}")
            settings[name] = value
    return settings


def settings_as_toml(values: Mapping[str, Any]) -> str:
    """Settings, in TrainConfig's order, as TOML text that `read_settings` reads."""
    lines: list[str] = []
    for section, names in settings_by_section([*values]).items():
        lines += [f"[{section}]", *(f"{name} = {_toml_value(values[name])}" for name in names), ""]
    return "\n".join(lines)


def _toml_value(value: str | bool | float) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
