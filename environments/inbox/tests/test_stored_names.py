"""Runs, locks and configurations that were stored when the mail agent was part of the core are opened as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.store.provenance import read_lock
from wanderlust.store.run import load_run
from wanderlust.tasks.registry import environment_name, resolve_environment, resolve_object
from wanderlust.training.config import TrainConfig
from wanderlust.training.presets import load_preset
from wanderlust_inbox.brief import BriefInbox, brief_teacher
from wanderlust_inbox.environment import Inbox

STORED = "wanderlust.environments.inbox"
SMALL = "inboxes=1,eval_inboxes=1,mails=200"


@pytest.mark.parametrize(("stored", "kind"), [("environment:Inbox", Inbox), ("brief:BriefInbox", BriefInbox)])
def test_a_stored_target_is_the_environment_of_today(stored, kind):
    resolved = resolve_environment(f"{STORED}.{stored},{SMALL}")
    assert type(resolved.env) is kind
    assert resolved.env.mails == 200


@pytest.mark.parametrize(
    ("stored", "name"),
    [("environment:Inbox", "inbox"), ("brief:BriefInbox", "brief-inbox"), ("own_mail:OwnMail", "own-mail")],
)
def test_it_has_the_name_of_today_too(stored, name):
    assert environment_name(f"{STORED}.{stored},turns=0.1") == f"{name},turns=0.1"


def test_a_configuration_of_then_is_the_preset_of_today():
    preset = load_preset("inbox")
    stored = {**preset.as_dict(), "env": f"{STORED}.brief:BriefInbox,hallucination=0.1,turns=0.05"}
    assert TrainConfig.from_dict(stored).as_dict() == preset.as_dict()


def test_a_run_of_then_goes_on_and_is_made_again(tmp_path):
    run, again = str(tmp_path / "run"), str(tmp_path / "again")
    command = ["eval", f"{STORED}.brief:BriefInbox,{SMALL}", "--policy", "teacher", "-n", "4", "--out", run]
    for words in (command, command, ["rerun", run, "--out", again]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    for folder in (run, again):
        lock = read_lock(Path(folder))
        assert lock is not None
        assert lock.settings["env"] == command[1]
    first, second = (load_run(folder).rollouts() for folder in (run, again))
    assert len(first) == 4
    assert [one.trajectory.score for one in first] == [one.trajectory.score for one in second]


def test_what_is_not_an_environment_is_found_as_well():
    assert resolve_object(f"{STORED}.brief:brief_teacher") is brief_teacher


def test_a_name_that_never_was_is_refused_as_before():
    with pytest.raises(UsageError, match=r"cannot import 'wanderlust\.environments\.inbox\.postcards'"):
        resolve_object(f"{STORED}.postcards:Card")
    with pytest.raises(UsageError, match="has no 'Postcard'"):
        resolve_object(f"{STORED}.brief:Postcard")
