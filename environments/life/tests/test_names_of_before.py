"""Runs and configurations that were stored when lives were part of worlds, or of the core, are opened as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderlust.cli.main import main
from wanderlust.store.provenance import read_lock
from wanderlust.store.run import load_run
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.training.config import TrainConfig
from wanderlust.training.presets import load_preset
from wanderlust_life.assistant_life import AssistantLife, AssistantLifeTeam
from wanderlust_life.brief_life import BriefLife


@pytest.mark.parametrize("stored", ["wanderlust_worlds.life", "wanderlust.worlds.life", "wanderlust.environments"])
@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        ("assistant_life:AssistantLife", AssistantLife, "life"),
        ("assistant_life:AssistantLifeTeam", AssistantLifeTeam, "life-team"),
        ("brief_life:BriefLife", BriefLife, "brief-life"),
    ],
)
def test_a_stored_target_is_the_environment_of_today(stored, target, kind, name):
    assert type(resolve_environment(f"{stored}.{target}").env) is kind
    assert environment_name(f"{stored}.{target},judge=j") == f"{name},judge=j"


def test_a_configuration_of_then_is_the_preset_of_today():
    preset = load_preset("life")
    stored = {**preset.as_dict(), "env": "wanderlust_worlds.life.brief_life:BriefLife"}
    assert TrainConfig.from_dict(stored).as_dict() == preset.as_dict()


def test_a_run_of_then_goes_on_and_is_made_again(tmp_path):
    run, again = str(tmp_path / "run"), str(tmp_path / "again")
    target = "wanderlust_worlds.life.assistant_life:AssistantLife,families=invite,levels=1"
    command = ["eval", target, "--policy", "oracle", "-n", "2", "--out", run]
    for words in (command, command, ["rerun", run, "--out", again]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    lock = read_lock(Path(again))
    assert lock is not None
    assert lock.settings["env"] == target
    first, second = (load_run(folder).rollouts() for folder in (run, again))
    assert len(first) == 2
    assert [one.state["digest"] for one in first] == [one.state["digest"] for one in second]
