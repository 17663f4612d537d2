"""Stories as data: what is told, what is refused in one line; drafts by a model, and what people decide about them."""

from __future__ import annotations

import asyncio
import json

import pytest

from wanderlust import Scripted, rollout
from wanderlust.cli.main import main
from wanderlust.errors import StoreError, UsageError
from wanderlust.tasks.registry import resolve_environment
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.described import StoryError, check_story, read_story, story_family
from wanderlust_life.drafts import review_draft, reviewed_drafts
from wanderlust_life.families.family import LEVELS
from wanderlust_life.story_drafts import EXAMPLE_STORY, describe_actions, write_stories
from wanderlust_worlds.verification.grading import FactGrader

SEARCH = {
    "name": "who-mailed",
    "capability": "search",
    "asks": "Say what somebody mailed.",
    "hard": "Others mailed as well.",
    "people": {"who": "neighbour"},
    "words": {"dish": ["lentil soup", "plum cake"]},
    "before": [{"mail": "who", "subject": "Saturday", "text": "I will bring {dish}.", "days_ago": 2}],
    "decoys": [{"mail": "other", "subject": "Saturday", "text": "I will bring cold tea.", "days_ago": 2}],
    "request": "{who} has mailed me what they bring on Saturday. What is it?",
    "then": [{"report": "It is {dish}.", "says": [{"ways": ["{dish}"], "not": ["cold tea"]}]}],
}


def story(**changes):
    """The example, changed."""
    return json.dumps({**json.loads(EXAMPLE_STORY), **changes})


def act(number, **changes):
    """The steps of the example, one of them changed."""
    steps = json.loads(EXAMPLE_STORY)["then"]
    steps[number] = {**steps[number], **changes}
    return steps


def test_a_story_is_played_like_any_family():
    for text in (EXAMPLE_STORY, json.dumps(SEARCH)):
        told = read_story(text)
        check_story(told, seeds=1)
        first, again, other = (story_family(told).scenario(seed, LEVELS[1]) for seed in (3, 3, 4))
        assert first.events == again.events != other.events


def test_wrong_answers_of_a_story_are_rejected():
    scenario = story_family(read_story(json.dumps(SEARCH))).scenario(0, LEVELS[2])
    said_by_oracle = str(scenario.oracle[-1].args["content"])
    for said, right in (("It is cold tea.", False), ("I do not know.", False), (said_by_oracle, True)):
        world = scenario.world(gate=FactGrader(scenario))
        world.wait()
        world.call("AgentUserInterface", "send_message_to_user", {"content": said})
        assert FactGrader(scenario).verdict(world.log).accepted == right, said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "Expected `object`, got `array`"),
        (story(name="Not A Name"), "the name 'Not A Name' is not of small letters"),
        (story(capability="flying"), r"Invalid enum value 'flying' - at `\$.capability`"),
        (story(extra=1), "unknown field `extra`"),
        (story(then=[]), "the story has 0 steps, expected 1 to 40"),
        (" " * 70_000, "70,000 bytes, more than 65,536"),
    ],
)
def test_what_is_no_story_is_refused_with_the_field(text, words):
    with pytest.raises(StoryError, match=words):
        read_story(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (story(people={"who": "emperor", "boss": "colleague"}), "people.who: nobody is a 'emperor'"),
        (story(words={"thing": "no-such-list"}), "words.thing: there is no word list 'no-such-list'"),
        (story(request="Ask {nobody} for it."), r"request: nothing is called \{nobody\}"),
        (story(request="Ask {who.shoe} for it."), r"request: nothing is called \{who.shoe\}"),
        (story(before=[{"text": "hello"}]), r"before\[0\]: give one of mail, chat, message, event, file"),
        (story(then=act(0, app="Chat")), "then.asked.app: there is no app 'Chat'; there are "),
        (story(then=act(0, action="shout")), "then.asked.action: Chats has no 'shout'; it has "),
        (story(then=act(0, by="env")), "Chats.send_message is nothing that env does"),
        (story(then=act(0, asks=False)), "content misses its own facts"),
        (story(then=act(2, says={"content": [{"day": "second"}]})), "subject is soft and has no facts"),
        (story(then=act(1, after=["later"])), "then.answer.after: no earlier step is called 'later'"),
        (story(then=act(2, args={"recipient": "x"})), "Emails.send_email: .*unexpected keyword argument 'recipient'"),
        (story(then=act(3, says=[{}])), "a fact needs wordings, or a day, a time or a person"),
    ],
)
def test_what_cannot_be_told_is_one_line_that_says_where(text, words):
    with pytest.raises(StoryError, match=words) as caught:
        check_story(read_story(text), seeds=1)
    assert "\n" not in str(caught.value)


def test_the_writer_is_shown_every_app_and_an_example_that_passes():
    check_story(read_story(EXAMPLE_STORY))
    shown = describe_actions()
    assert "Chats, by agent: " in shown
    assert "create_and_add_message(conversation_id, sender_id, content" in shown


def scripted(*answers):
    """A writer that answers these in order, whatever it is asked; and how often it was asked."""
    asked = []

    def answer(messages, rng):
        asked.append(messages[-1].content)
        return answers[len(asked) - 1]

    return Scripted(answer), asked


def test_a_draft_that_cannot_be_told_is_mended_or_left_out_and_the_rest_goes_on(tmp_path):
    leak = {**SEARCH, "name": "leak", "words": {}, "before": [{**SEARCH["before"][0], "text": "I bring plum cake."}]}
    leak["request"], leak["then"] = (
        "Does {who} bring plum cake?",
        [{"report": "It is plum cake.", "says": [["plum cake"]]}],
    )
    writer, asked = scripted(
        "I would rather not.",
        "```json\n" + json.dumps(SEARCH) + "\n```",
        *[json.dumps(leak)] * 3,
        "Here it is: " + EXAMPLE_STORY,
    )
    done = write_stories(writer, out=tmp_path, count=3, progress=False)
    assert [(one.name, one.state, one.attempts) for one in done.drafts] == [
        ("who-mailed", "ready", 2),
        ("draft-1", "failed", 3),
        ("bring-back", "ready", 1),
    ]
    assert "no JSON object" in asked[1]
    assert "the request says already what is to be found out: 'plum cake'" in done.drafts[1].reason
    assert done.counts == {"ready": 2, "easy": 0, "failed": 1}
    assert done.drafts[0].solved["greedy"][1] == 6


def test_the_same_call_goes_on_and_repeats_without_the_model(tmp_path):
    writer, asked = scripted(json.dumps(SEARCH), EXAMPLE_STORY)
    write_stories(writer, out=tmp_path, count=1, progress=False)
    first = write_stories(writer, out=tmp_path, count=2, progress=False)
    assert len(asked) == 2
    (tmp_path / "drafts.jsonl").unlink()
    silent, never = scripted()
    again = write_stories(silent, out=tmp_path, count=2, progress=False)
    assert (again.drafts, never) == (first.drafts, [])


def test_a_draft_that_a_solver_passes_is_easy(tmp_path):
    writer, _ = scripted(json.dumps(SEARCH))
    knows = Scripted(lambda messages, rng: "It is lentil soup.")
    done = write_stories(writer, out=tmp_path, count=1, solvers=[knows], solved_at_most=0.1, progress=False)
    (draft,) = done.drafts
    assert draft.state == "easy"
    assert draft.reason == "solver 1 passes more than 10% of its tasks"


@pytest.fixture
def folder(tmp_path):
    """A folder with two drafts."""
    writer, _ = scripted(json.dumps(SEARCH), EXAMPLE_STORY)
    write_stories(writer, out=tmp_path / "drafts", count=2, progress=False)
    return tmp_path / "drafts"


def test_only_accepted_stories_are_played(folder):
    with pytest.raises(UsageError, match=r"no draft in .* is accepted yet: wander world review"):
        AssistantLife(str(folder))
    review_draft(folder, "who-mailed", "accept")
    env = resolve_environment(f"life,families={folder},levels=1").env
    tasks = [*env.tasks("eval")]
    assert {task.info["family"] for task in tasks} == {"who-mailed"}
    for task in tasks:
        assert asyncio.run(rollout(env, task, env.oracle(task))).trajectory.score.reward == 1.0
    alone = AssistantLife(str(folder / "bring-back.json"), levels=1)
    assert [one.name for one in alone.families] == ["bring-back"]


def test_a_changed_story_has_to_be_reviewed_again(folder):
    review_draft(folder, "who-mailed", "accept", comment="good")
    assert [one.decision for one in reviewed_drafts(folder)] == ["accepted", "open"]
    with pytest.raises(StoryError, match="the story is called 'other', expected 'who-mailed'"):
        review_draft(folder, "who-mailed", "edit", text=json.dumps({**SEARCH, "name": "other"}))
    assert reviewed_drafts(folder)[0].decision == "accepted"
    changed = {**SEARCH, "request": "What does {who} bring on Saturday? It came by mail."}
    assert review_draft(folder, "who-mailed", "edit", text=json.dumps(changed)).decision == "open"
    assert review_draft(folder, "who-mailed", "reject").decision == "rejected"
    assert review_draft(folder, "who-mailed", "comment", comment="a pity").decision == "rejected"


def command(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["world", *words])
    out = capsys.readouterr()
    return end.value.code, out.out, out.err


def test_the_command_lists_shows_and_decides(folder, capsys):
    code, out, _ = command(capsys, "review", str(folder), "--json")
    assert (code, [one["decision"] for one in json.loads(out)["drafts"]]) == (0, ["open", "open"])
    code, out, _ = command(capsys, "review", str(folder), "bring-back")
    assert (code, '"name": "bring-back"' in out) == (0, True)
    code, out, _ = command(capsys, "review", str(folder), "bring-back", "accept", "--comment", "fine", "--json")
    assert (code, json.loads(out)["drafts"][0]["decision"]) == (0, "accepted")
    for words in (["bring-back", "burn"], ["nothing-here"], ["nothing-here", "accept"]):
        code, _, err = command(capsys, "review", str(folder), *words)
        assert (code, len(err.strip().splitlines())) == (2, 1)


def test_the_command_drafts_by_a_script(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "writer.py").write_text(
        f"TEXTS = {[json.dumps(SEARCH), EXAMPLE_STORY]!r}\n"
        "def writer(messages, rng):\n"
        "    return TEXTS['adaptability' in messages[1].content]\n"
    )
    words = ["--policy", "writer.py:writer", "--out", "drafts", "--count", "1", "--json"]
    code, out, err = command(capsys, "write", *words)
    assert code == 0, err
    assert json.loads(out)["counts"] == {"ready": 1, "easy": 0, "failed": 0}
    assert command(capsys, "write", "--policy", "writer.py:writer")[0] == 2
    for words, why in (([], "needs --policy"), (["--policy", "greedy"], "needs a writer: --policy URL")):
        code, _, err = command(capsys, "write", "--out", "more", *words)
        assert (code, why in err, len(err.strip().splitlines())) == (2, True, 1)


def test_a_folder_whose_names_lead_elsewhere_is_refused(folder):
    place = folder / "drafts.jsonl"
    place.write_text(place.read_text().replace("who-mailed", "../../who-mailed"))
    with pytest.raises(StoreError, match=r"'../../who-mailed' is no name of a draft"):
        reviewed_drafts(folder)
