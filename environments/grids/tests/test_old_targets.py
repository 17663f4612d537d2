"""Runs and cards that name grid games as they were named inside the core open and are played."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderlust.cli.main import main
from wanderlust.tasks.registry import environment_name, load_environment, short_environment_name
from wanderlust_grids.environment import Grids

OLD = "wanderlust.environments.grids.environment:Grids"


def test_an_old_target_makes_the_environment_with_its_settings() -> None:
    env = load_environment(f"{OLD},levels=2")
    assert isinstance(env, Grids)
    assert env.levels == 2


def test_an_old_target_has_the_name_of_today() -> None:
    assert short_environment_name(f"{OLD},levels=2") == "grids,levels=2"
    assert environment_name(OLD) == "grids"
    official = "wanderlust.environments.grids.official_environment:OfficialGames,folder=f"
    assert environment_name(official) == "arc,folder=f"


def wander(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words])
    assert not end.value.code


def test_a_run_that_was_begun_by_an_old_target_goes_on_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    wander("eval", f"{OLD},levels=1", "--policy", "random", "-n", "2", "--out", folder)
    wander("eval", f"{OLD},levels=1", "--policy", "random", "-n", "2", "--out", folder)
    capsys.readouterr()
    wander("show", folder, "1")
    assert "grids-" in capsys.readouterr().out
