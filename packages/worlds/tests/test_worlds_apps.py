"""The ready-made apps: mail, the user's interface, the clock; and what an app declares."""

from __future__ import annotations

import base64
import re
from typing import ClassVar

import pytest

from project_files import ROOT
from wanderlust.errors import UsageError
from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps import app_classes, check_app
from wanderlust_worlds.apps.files import FileStorage
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.argument_checks import (
    EXACT_CHECK,
    FREE_CHECK,
    PATHS_CHECK,
    PHONE_CHECK,
    TEXT_CHECK,
    UNORDERED_CHECK,
    judged_text,
)
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.world import World

ARE_MAIL = {
    "user_email": "me@x.org",
    "view_limit": 5,
    "folders": {
        "INBOX": {
            "folder_name": "INBOX",
            "emails": [
                {
                    "email_id": f"in{n}",
                    "sender": f"{name}@x.org",
                    "recipients": ["me@x.org"],
                    "subject": f"From {name}",
                    "content": "Hi",
                    "timestamp": 10.0 * n,
                    "is_read": False,
                    "parent_id": None,
                    "cc": None,
                    "attachments": {"a.txt": base64.b64encode(b"abc").decode()} if n == 0 else None,
                }
                for n, name in enumerate(("ana", "bo", "cleo"))
            ],
        },
        "SENT": {"folder_name": "SENT", "emails": []},
    },
}


class Files(FileStorage):
    """Files by path."""

    files: CowDict[bytes] = CowDict()

    def read_bytes(self, path):
        if path not in self.files:
            raise ToolError(f"there is no file {path}")
        return self.files[path]

    def write_bytes(self, path, content):
        self.files[path] = content


@pytest.fixture
def world():
    return World([Mail.from_are("Emails", ARE_MAIL), Files(files=CowDict({"docs/b.txt": b"b"}))], start=100.0)


def use(world, action, by="agent", **args):
    return world.call("Emails", action, args, by=by)


def ids(mails):
    return [mail.email_id for mail in mails]


def test_mail_is_read_newest_first(world):
    page = use(world, "list_emails", limit=2)
    assert (ids(page.emails), page.emails_range, page.total_emails) == (["in2", "in1"], (0, 2), 3)
    assert ids(use(world, "list_emails", offset=2).emails) == ["in0"]
    assert use(world, "get_email_by_index", idx=1).email_id == "in1"
    assert [mail.is_read for mail in use(world, "list_emails").emails] == [False, True, False]
    assert ids(use(world, "search_emails", query="CLEO")) == ["in2"]
    for wrong in ({"idx": 3}, {"idx": -1}, {"idx": 0, "folder_name": "JUNK"}):
        with pytest.raises(ToolError, match="there is no"):
            use(world, "get_email_by_index", **wrong)


def test_mail_is_sent_answered_forwarded_and_comes_back(world):
    sent = use(world, "send_email", recipients=["ana@x.org"], subject="Hi", attachment_paths=["docs/b.txt"])
    back = use(world, "reply_to_email_from_user", by="env", sender="ana@x.org", email_id=sent, content="yes")
    answer = use(world, "reply_to_email", email_id=back, content="good")
    again = use(world, "reply_to_email", email_id=answer, folder_name="SENT", content="and?")
    on = use(world, "forward_email", email_id="in0", recipients=["bo@x.org"])
    box = {mail.email_id: mail for mail in world.apps["Emails"].sent.values()}
    assert box[sent].attachments == {"b.txt": base64.b64encode(b"b").decode()}
    assert (box[answer].recipients, box[answer].subject) == (("ana@x.org",), "Re: Re: Hi")
    assert box[again].recipients == ("ana@x.org",)
    assert (box[on].subject, list(box[on].attachments), box[on].timestamp) == ("Fwd: From ana", ["a.txt"], 100.0)
    assert [notice.text for notice in world.deliver()] == ["New email received"]
    with pytest.raises(ToolError, match=r"bo@x.org did not get the mail"):
        use(world, "reply_to_email_from_user", by="env", sender="bo@x.org", email_id=sent)
    with pytest.raises(ToolError, match="not an address: 'ana'"):
        use(world, "send_email", recipients=["ana"])
    with pytest.raises(ToolError, match="no file nowhere"):
        use(world, "send_email", recipients=["ana@x.org"], attachment_paths=["nowhere"])


def test_mail_is_moved_deleted_and_its_attachments_saved(world):
    use(world, "move_email", email_id="in1", dest_folder_name="draft")
    use(world, "delete_email", email_id="in2")
    assert use(world, "download_attachments", email_id="in0") == ["Downloads/a.txt"]
    app = world.apps["Emails"]
    assert [list(folder) for folder in (app.inbox, app.draft, app.trash)] == [["in0"], ["in1"], ["in2"]]
    assert world.apps["Files"].files["Downloads/a.txt"] == b"abc"
    with pytest.raises(ToolError, match="no mail 'in1' in INBOX"):
        use(world, "delete_email", email_id="in1")


def test_mail_state_is_plain_data(world):
    use(world, "delete_email", email_id="in2")
    state = world.apps["Emails"].state()
    assert Mail.load("Emails", state).state() == state
    old = use(world, "create_and_add_email_with_time", by="data", sender="a@b", email_time="1970-01-01 00:01:00")
    assert world.apps["Emails"].inbox[old].timestamp == 60


def test_the_conversation_with_the_user():
    world = World([UserInterface()], start=50.0)

    def call(action, by="agent", **args):
        return world.call("UserInterface", action, args, by=by)

    call("send_message_to_agent", by="user", content="hello", attachments=["x"])
    call("send_message_to_user", content="yes?")
    call("send_message_to_agent", by="user", content="bye")
    assert [notice.text for notice in world.deliver()] == ["hello", "bye"]
    assert call("get_last_message_from_user").content == "bye"
    assert [said.content for said in call("get_last_unread_messages")] == ["hello"]
    assert call("get_last_unread_messages") == []
    assert call("get_last_message_from_agent").content == "yes?"
    assert len(call("get_all_messages")) == 3
    state = {"messages": [{"sender": "User", "content": "a", "timestamp": 1.0, "attachments": [], "time_read": None}]}
    assert UserInterface.from_are("UI", state).messages["UI-0"].content == "a"


def test_the_clock():
    world = World([System()], start=1_728_975_600.0)
    assert world.call("System", "get_current_time", {}) == {
        "current_timestamp": 1_728_975_600.0,
        "current_datetime": "2024-10-15 07:00:00",
        "current_weekday": "Tuesday",
    }
    world.call("System", "wait_for_notification", {"timeout": 90})
    assert world.now == 1_728_975_690.0
    for seconds in (-1, 10**30):
        with pytest.raises(ToolError, match="negative"):
            world.call("System", "wait_for_notification", {"timeout": seconds})


@pytest.mark.parametrize(("check", "wanted", "given", "same"), [
    (EXACT_CHECK, [1], [1], True), (EXACT_CHECK, "a", "A", False), (FREE_CHECK, 1, "x", True),
    (TEXT_CHECK, "INBOX", " inbox ", True), (TEXT_CHECK, "", None, True), (TEXT_CHECK, "a", "b", False),
    (UNORDERED_CHECK, ["a", "B"], ["b", "a", "a"], True), (UNORDERED_CHECK, None, [], True),
    (UNORDERED_CHECK, ["a"], [], False),
    (PATHS_CHECK, ["/a/b", "c"], ["c", "a//b"], True), (PHONE_CHECK, "+1 (555) 2", "15552", True),
    (judged_text("mail"), "See you", "see  YOU", True), (judged_text("mail"), "See you", "Until then", None),
])  # fmt: skip
def test_checks(check, wanted, given, same):
    assert check.same(wanted, given) is same


@pytest.mark.parametrize("kind", sorted(set(app_classes().values()), key=str), ids=lambda kind: kind.__name__)
def test_ready_made_apps_keep_the_rules(kind):
    assert check_app(kind()) == []


def test_ready_made_apps_are_found_by_their_names_and_ares():
    known = app_classes()
    assert known["Mail"] is known["EmailClientV2"] is Mail
    assert known["AgentUserInterface"] is UserInterface
    assert known["SystemApp"] is System


ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)


def test_the_page_counts_the_actions_of_every_app():
    page = (ROOT / "docs/worlds.md").read_text(encoding="utf-8")
    told = {name: (names.strip(), tuple(map(int, counts))) for name, names, *counts in ROW.findall(page)}
    offered = {kind for kind in app_classes().values() if not kind.__subclasses__() or kind.__name__ in told}
    assert told == {
        kind.__name__: (
            ", ".join(vars(kind).get("aliases", ())),
            tuple(sum(who in one.scopes for one in kind.actions.values()) for who in ("agent", "user", "env", "data")),
        )
        for kind in offered - {Sloppy, Loud}
    }


def test_faults_of_an_app_are_found(world):
    use(world, "delete_email", email_id="in2")
    assert check_app(world.apps["Emails"]) == []
    assert check_app(Sloppy()) == [
        "Sloppy.mumble has no docstring",
        "Sloppy.mumble: its docstring does not say what text is",
        "Sloppy: its state changes when it is saved and read",
    ]


class Sloppy(App):
    """An app that nobody looked over."""

    pair: object = (1, 2)

    @action("agent")
    def mumble(self, text: str) -> None: ...

    def state(self):
        """Something else each time."""
        return {"pair": len(Sloppy.moods.append(1) or Sloppy.moods)}

    moods: ClassVar[list[int]] = []


class Loud(Mail):
    """A mail app that also shouts."""

    @action("agent", writes=True)
    def shout(self, text: str) -> str:
        """Say it loudly."""
        return text.upper()


def test_an_app_inherits_actions_and_state():
    assert {"send_email", "shout"} <= Loud.actions.keys()
    assert "shout" not in Mail.actions
    assert list(Loud.fields()) == list(Mail.fields())
    assert World([Loud()]).call("Loud", "shout", {"text": "a"}) == "A"


def test_an_action_needs_a_known_scope():
    with pytest.raises(UsageError, match="needs scopes out of agent"):
        action("model")(lambda self: None)
    with pytest.raises(UsageError, match="needs scopes out of agent"):
        action()(lambda self: None)


def test_an_action_speaks_of_its_own_arguments():
    with pytest.raises(UsageError, match="the action give has no argument whom: self, to"):

        @action("env", notify="low", says="{whom} got it")
        def give(self, to: str) -> None: ...


def test_an_app_of_no_world_says_so():
    with pytest.raises(UsageError, match="belongs to no world"):
        System().get_current_time()
    assert App().state() == {}
