"""Generated inboxes, their questions, and the agent's environment with its readers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups, run_blocking
from wanderlust.testing import check_environment
from wanderlust.types import Message, Policy, Rollout, ToolCall, assistant
from wanderlust_inbox.brief import BriefInbox, CodeWords, TeacherHabits, brief_teacher
from wanderlust_inbox.corpus import Corpus, InboxPlan, generate
from wanderlust_inbox.environment import SPLITS, Inbox, accepted_answers
from wanderlust_inbox.generated import generated_inbox
from wanderlust_inbox.language import bare_answer, topics
from wanderlust_inbox.players import READERS, STOP_WORDS
from wanderlust_inbox.questions import (
    HELD_OUT_KINDS,
    KIND_SHARES,
    InboxQuestion,
    Ledger,
    make_questions,
)
from wanderlust_inbox.store import InboxFile

PLAN = InboxPlan(mails=1500)


@pytest.fixture(autouse=True)
def cache_here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "inbox-cache"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate(PLAN)


@pytest.fixture
def env() -> Inbox:
    return Inbox(inboxes=1, eval_inboxes=1, mails=1500)


def play(env: Inbox, policy: Policy, count: int = 30, split: str = "eval") -> list[Rollout]:
    groups = run_blocking(lambda: play_groups(env, env.tasks(split)[:count], policy, seed=0))
    return [rollout for group in groups for rollout in group.rollouts]


def reward(rollout: Rollout) -> float:
    score = rollout.trajectories[0].score
    assert score is not None, rollout.error
    return score.reward


def call(name: str, arguments: str) -> Message:
    return assistant("", ToolCall(id="c", name=name, arguments=arguments))


def test_a_plan_makes_the_same_inbox_and_another_seed_another(corpus: Corpus) -> None:
    assert generate(PLAN).mails == corpus.mails
    assert generate(InboxPlan(mails=1500, seed=1)).mails != corpus.mails


def test_the_corpus_is_as_varied_as_real_mail(corpus: Corpus) -> None:
    depth = Counter(Counter(mail.thread for mail in corpus.mails).values())
    assert set(range(2, 9)) <= depth.keys()
    assert max(depth) == 8
    lengths = sorted(len(mail.body) for mail in corpus.mails)
    assert lengths[0] < 60
    assert lengths[-1] > 2500
    assert len({mail.id for mail in corpus.mails}) == len(corpus.mails) == 1500
    assert any(mail.cc for mail in corpus.mails)
    assert any(mail.attachments for mail in corpus.mails)
    assert any(mail.subject.startswith("Fwd: ") for mail in corpus.mails)
    assert any("> >" in mail.body for mail in corpus.mails)
    shared = [person for person in corpus.people if len(person.circles) > 1]
    assert shared


def test_held_out_people_and_places_are_in_no_inbox_of_training(corpus: Corpus) -> None:
    held = generate(InboxPlan(mails=1500, people="held"))
    assert not {person.last for person in corpus.people} & {person.last for person in held.people}


@pytest.mark.parametrize("held_out_kinds", [False, True])
def test_questions_are_verified_and_share_at_most_one_word_with_their_mails(
    corpus: Corpus, held_out_kinds: bool
) -> None:
    questions = make_questions(corpus, PLAN, count=200, held_out_kinds=held_out_kinds)
    mails = {mail.id: mail for mail in corpus.mails}
    assert {one.kind for one in questions} <= set(HELD_OUT_KINDS if held_out_kinds else KIND_SHARES)
    for one in questions:
        asked = words(one.text) - STOP_WORDS
        for source in one.sources:
            mail = mails[source]
            sender = corpus.names[mail.sender]
            assert len(asked & words(f"{mail.subject} {mail.new_text} {sender}")) <= 1, one
        assert bool(one.answer) == bool(one.sources) == (one.kind != "unanswerable")


def words(text: str) -> set[str]:
    return set(re.findall("[a-z]+", text.lower()))


def test_a_ledger_without_a_source_gives_another_answer(corpus: Corpus) -> None:
    ledger = Ledger(corpus.ledger)
    first = corpus.ledger[0]
    without = Ledger([one for one in corpus.ledger if one.mail != first.mail])
    assert len(without.by_key[first.person, first.topic]) < len(ledger.by_key[first.person, first.topic])


def test_shares_of_kinds() -> None:
    assert sum(KIND_SHARES.values()) == pytest.approx(1)
    assert KIND_SHARES["unanswerable"] == 0.15
    every = [word for group in topics() for word in group]
    assert len(set(every)) == len(every)


def test_the_file_is_written_once_and_names_its_generator(tmp_path: Path) -> None:
    path = generated_inbox(PLAN, tmp_path)
    stamp = path.stat().st_mtime_ns
    assert generated_inbox(PLAN, tmp_path) == path
    assert path.stat().st_mtime_ns == stamp
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("On Tuesday at 14:30.", "tuesday 14:30"), ("the Golden Fig", "golden fig"), ("184 EUR", "184")],
)
def test_answers_are_compared_as_words(given: str, wanted: str) -> None:
    assert bare_answer(given) == wanted


def test_a_person_is_accepted_by_last_name() -> None:
    assert accepted_answers("Arno Dundale") == ["Arno Dundale", "Dundale"]
    assert accepted_answers("the Golden Fig") == ["the Golden Fig"]
    assert accepted_answers("") == []


def test_the_oracle_is_right_in_every_split(env: Inbox) -> None:
    for split in SPLITS:
        tasks = env.tasks(split)[:40]
        for task in tasks:
            (group,) = run_blocking(lambda task=task: play_groups(env, [task], env.oracle(task), seed=0))
            assert group.rollouts[0].state["record"]["right"], task.id


def test_readers_earn_what_a_shortcut_may(env: Inbox) -> None:
    right = {name: [r.state["record"]["right"] for r in play(env, env.players[name](), 80)] for name in READERS}
    share = {name: sum(found) / len(found) for name, found in right.items()}
    assert share["closed-book"] <= 0.05
    assert share["bm25"] <= 0.35
    assert share["reread"] <= 0.6


def test_tools_answer_and_a_faulty_call_ends_the_episode(env: Inbox) -> None:
    task = env.tasks("eval")[0]
    script = [
        call("search_emails", '{"keywords": ["the"], "max_results": 500}'),
        call("read_email", '{"message_id": "none"}'),
        call("search_emails", '{"keywords": [], "sent_after": "soon"}'),
    ]
    (group,) = run_blocking(lambda: play_groups(env, [task], Scripted(script), seed=0))
    (rollout,) = group.rollouts
    record = rollout.state["record"]
    assert record["invalid_id"]
    assert record["invalid_arguments"]
    assert record["turns"] == 4
    assert "there is no mail" in rollout.trajectories[0].messages[5].content


def test_turns_are_counted_as_the_rewards_want(env: Inbox) -> None:
    never = Scripted(lambda _messages, _rng: call("search_emails", '{"keywords": ["the"]}'))
    (rollout, *_) = play(env, never, 1)
    assert rollout.state["record"]["turns"] == 11
    assert rollout.stop_reason == "max_turns"
    (talk, *_) = play(env, Scripted(["It is Tuesday."]), 1)
    assert talk.state["record"]["invalid_arguments"]
    assert reward(talk) == 0


def test_the_environments_conform() -> None:
    asyncio.run(check_environment(Inbox(inboxes=1, eval_inboxes=1, mails=600)))
    asyncio.run(check_environment(BriefInbox(inboxes=1, eval_inboxes=1, mails=600)))


def test_the_brief_view_takes_actions_and_answers_others_with_a_question_mark() -> None:
    env = BriefInbox(inboxes=1, eval_inboxes=1, mails=1500)
    task = next(task for task in env.tasks("eval") if task.info["kind"] == "lookup")
    lines = [
        "search",
        "read 1 .",
        "more .",
        "dance",
        "search news in mai .",
        "read 99",
        "answer",
        "search the .",
        "read 1 .",
    ]
    (group,) = run_blocking(lambda: play_groups(env, [task], Scripted([*lines, "answer unknown ."]), seed=0))
    (rollout,) = group.rollouts
    replies = [one.content for one in rollout.trajectories[0].messages if one.role == "user"][1:]
    assert replies[:7] == ["?"] * 7
    assert len(replies[7].splitlines()) == 4
    assert len(replies[8].split()) <= 41
    assert rollout.state["record"]["abstained"]
    assert rollout.state["read"]


def test_code_words_stand_for_people_and_places(corpus: Corpus, tmp_path: Path) -> None:
    with InboxFile(generated_inbox(PLAN, tmp_path)) as inbox:
        person = corpus.people[0]
        code = CodeWords.of(inbox)
        assert code.hide(f"For {person.name}: come to the Golden Fig, {person.last}!") == (
            "for alfa: come to the bravo , alfa !"
        )
        assert code.show("bravo with alfa") == f"Golden Fig with {person.name}"


def test_the_teacher_is_mediocre() -> None:
    env = BriefInbox(inboxes=1, eval_inboxes=1, mails=1500)
    right = [rollout.state["record"]["right"] for rollout in play(env, env.players["teacher"](), 120, "train")]
    assert 0.15 < sum(right) / len(right) < 0.55


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"inboxes": 0}, "inboxes and eval_inboxes are at least 1"),
        ({"mails": 5}, "mails is from 200"),
        ({"reward": "best"}, "no reward 'best'"),
    ],
)
def test_options_there_are_not(options: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        Inbox(**options)  # type: ignore[arg-type]


def test_a_split_there_is_not(env: Inbox) -> None:
    with pytest.raises(UsageError, match="there is no split 'test'"):
        env.tasks("test")


def test_questions_are_plain_data() -> None:
    one = InboxQuestion(id="a", text="When?", kind="lookup", answer="x", sources=("m",))
    assert one.sources == ("m",)


def test_balanced_training_has_equally_many_questions_of_each_kind() -> None:
    env = BriefInbox(inboxes=1, eval_inboxes=1, mails=1500)
    balanced = BriefInbox(inboxes=1, eval_inboxes=1, mails=1500, balanced=True)
    count = Counter(task.info["kind"] for task in env.tasks("train"))
    kept = Counter(task.info["kind"] for task in balanced.tasks("train"))
    assert set(kept) == set(count)
    assert set(kept.values()) == {min(count.values())}
    assert [task.id for task in balanced.tasks("eval")] == [task.id for task in env.tasks("eval")]
    first = [task.info["kind"] for task in balanced.tasks("train")[: len(kept)]]
    assert set(first) == set(kept)
    ids = {task.id for task in env.tasks("train")}
    assert ids.issuperset(task.id for task in balanced.tasks("train"))


def test_the_teacher_adds_instalments_up_and_no_other_amounts() -> None:
    env = BriefInbox(inboxes=1, eval_inboxes=1, mails=1500)
    sums = [task for task in env.tasks("train") if task.info["kind"] == "sum"]
    careful = TeacherHabits(synonym=1, sender=1, newest=1, patience=1, list_on=1, add=1)
    played = run_blocking(lambda: play_groups(env, sums, brief_teacher(careful), seed=0))
    right = [rollout.state["record"]["right"] for group in played for rollout in group.rollouts]
    assert len(right) >= 10
    assert sum(right) / len(right) > 0.6
