"""The verifier: right on labelled perturbations, exact where acts look alike, honest about what it cannot tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import combinations, permutations
from random import Random

import msgspec
import pytest
from benchmarks.verifier.confusion import confusion
from benchmarks.verifier.lookalikes import make_look_alikes
from benchmarks.verifier.paraphrases import paraphrase_judge
from benchmarks.verifier.perturbations import ALL_PERTURBATIONS as KINDS
from benchmarks.verifier.perturbations import PerfectRun
from benchmarks.verifier.planned_actions import log_of_actions, oracle_actions
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.errors import PolicyFailure
from wanderlust.policies.scripted import Scripted
from wanderlust_worlds.apps.calendar import Calendar
from wanderlust_worlds.apps.contacts import Contact, Contacts
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.user_interface import UserInterface
from wanderlust_worlds.engine.events import Milestone, Minefield, PlannedCall, result_ref
from wanderlust_worlds.engine.log import log_bytes, read_log
from wanderlust_worlds.engine.replay import replay_log
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.engine.world import match_first
from wanderlust_worlds.verification.assignment import AssignmentProblem, maximum_matching, solve_assignment
from wanderlust_worlds.verification.oracle import Oracle, TimeWindow
from wanderlust_worlds.verification.verdict import JudgeAnswer, JudgeQuestion, read_verdict
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.verification.world_judge import WorldJudge, render_question, verify_with_judge
from world_apps import Notes

MAIL, WORK, UI, NOTES = (
    Mail("Emails", user_email="me@x.org"),
    Mail("Work", user_email="me@x.org"),
    UserInterface(),
    Notes(),
)
APPS = (MAIL, WORK, UI, NOTES)


def test_every_kind_of_perturbation_gets_the_right_verdict():
    found = asyncio.run(confusion(range(8)))
    assert len(KINDS) >= 40
    assert found.structural.keys() == KINDS.keys()
    assert (found.accepted_wrongly, found.rejected_wrongly) == (0, 0)
    assert found.right == found.total > 500, "\n".join(found.lines())


def test_first_come_first_served_rejects_what_is_right():
    """The lesson: upstream's way fails where acts look alike, ours does not."""
    kinds = [KINDS["another allowed order"]]
    ours, theirs = (asyncio.run(confusion(range(25), compat=one, kinds=kinds)) for one in ("strict", "are"))
    assert (ours.rejected_wrongly, ours.judged["another allowed order"]["accept"]) == (0, 25)
    assert theirs.judged["another allowed order"]["reject"] >= 2


def kept(values, rows):
    return all(1 << values[b] & allowed[values[a]] for (a, b), allowed in rows.items())


@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_the_search_finds_a_choice_whenever_there_is_one(seed):
    rng = Random(seed)
    slots, values = rng.randint(1, 5), rng.randint(1, 6)
    domains = [rng.randrange(1, 1 << values) for _ in range(slots)]
    rows = {}
    for _ in range(rng.randint(0, 5)):
        a, b = rng.randrange(slots), rng.randrange(slots)
        if a != b and (a, b) not in rows:
            one = {v: rng.randrange(1 << values) for v in range(values)}
            rows[a, b] = one
            rows[b, a] = {w: sum(1 << v for v in one if one[v] >> w & 1) for w in range(values)}
    total = sum(rng.randrange(1 << values) for _ in range(1))
    wide = [(tuple(range(slots)), lambda at: sum(at.values()) % 3 == total % 3)] if rng.random() < 0.3 else []

    def right(chosen):
        return (
            all(domains[n] >> v & 1 for n, v in enumerate(chosen))
            and kept(chosen, rows)
            and all(holds(dict(enumerate(chosen))) for _, holds in wide)
        )

    known = any(map(right, permutations(range(values), slots)))
    found = solve_assignment(AssignmentProblem(domains=domains, rows=rows, group_constraints=wide))
    assert found.decided
    assert (found.values is not None) == known
    assert found.values is None or (right(found.values) and len(set(found.values)) == slots)
    size = max(len({*c}) for c in [maximum_matching(domains)])
    best = next(k for k in range(slots, -1, -1) if partial(domains, k, values))
    assert size == best


def partial(domains, count, values):
    """Whether so many slots can have values of their own."""
    return any(
        all(domains[n] >> v & 1 for n, v in zip(chosen, order, strict=True))
        for chosen in combinations(range(len(domains)), count)
        for order in permutations(range(values), count)
    )


def test_a_search_that_takes_too_long_says_so():
    odd = {v: sum(1 << w for w in range(12) if (v + w) % 2) for v in range(12)}
    rows = {(a, b): odd for a in range(9) for b in range(9) if a != b}
    assert solve_assignment(AssignmentProblem(domains=[(1 << 12) - 1] * 9, rows=rows), limit=3).decided is False
    assert solve_assignment(AssignmentProblem(domains=[(1 << 12) - 1] * 9, rows=rows)) == solve_assignment(
        AssignmentProblem(domains=[(1 << 12) - 1] * 9, rows=rows)
    )


def scenario(*acts, **rest):
    return Scenario(id="s", apps=APPS, events=acts, start=0.0, **rest)


def note(id, text="t", **rest):
    return PlannedCall(id=id, app="Notes", action="add_note", args={"text": text}, by="agent", **rest)


def mail(id, to, **rest):
    return PlannedCall(
        id=id, app="Emails", action="send_email", args={"recipients": [to], **rest.pop("args", {})}, by="agent", **rest
    )


def done(found, *changes, **options):
    """The verdict after the oracle's deeds with these changes."""
    deeds = oracle_actions(found)
    for change in changes:
        deeds = change(deeds)
    return verify(log_of_actions(found, deeds), Oracle.of(found), **options)


def test_many_equal_acts_are_no_puzzle():
    """Two hundred equal mails, each after the one before, and two hundred writes."""
    acts = [mail(f"m{n}", "a@x.org", after=(f"m{n - 1}",) if n else ()) for n in range(200)]
    verdict = verify(play_oracle(scenario(*acts)).log, Oracle.of(scenario(*acts)))
    assert (verdict.decision, len(verdict.matched)) == ("accept", 200)


def test_a_chain_of_results_tells_equal_acts_apart():
    """Equal mails; each is then forwarded to somebody else, so only one assignment is right."""
    acts = [mail(f"m{n}", "a@x.org") for n in range(6)]
    for n in range(6):
        args = {"email_id": result_ref(f"m{n}"), "recipients": [f"{n}@x.org"], "folder_name": "SENT"}
        acts.append(
            PlannedCall(id=f"f{n}", app="Emails", action="forward_email", args=args, by="agent", after=(f"m{n}",))
        )
    one = scenario(*acts)
    assert done(one, lambda d: [*reversed(d[:6]), *d[6:]]).accepted
    assert done(one, lambda d: [*d[:6], *reversed(d[6:])]).accepted
    twice = done(
        one, lambda d: [replace(x, args={**x.args, "email_id": result_ref("m0")}) if x.id == "f1" else x for x in d]
    )
    assert twice.decision == "reject"


def test_reasons_say_what_is_wrong_and_how_nearly_it_was_right():
    one = scenario(mail("m", "a@x.org"), note("n", after=("m",), delay=100))
    wrong = done(one, lambda d: [replace(d[0], args={"recipients": ["b@x.org"]}), d[1]])
    assert [r.fault for r in wrong.reasons] == ["missing", "extra"]
    assert "recipients is ['b@x.org'], not ['a@x.org']" in wrong.reasons[0].text
    assert (wrong.missing, wrong.share) == (("m",), 0.5)
    late = done(one, lambda d: [d[0], replace(d[1], time=d[1].time + 40)])
    assert [(r.fault, r.event) for r in late.reasons] == [("time", "n")]
    assert late.reasons[0].text == "n (Notes.add_note): line 3 is 40 seconds after it was due"
    early = done(one, lambda d: [replace(d[1], time=0.0), d[0]])
    assert {r.fault for r in early.reasons} == {"order", "time"}
    assert "is before m" in str(early)


@pytest.mark.parametrize(("timing", "off", "right"), [
    ("", 30, False), ("", -15, False), ("", 20, True), ("by", -80, True), ("by", 30, False), ("from", 500, True),
    ("from", -15, False),
])  # fmt: skip
def test_time_is_read_as_the_act_says(timing, off, right):
    one = scenario(note("a"), note("n", "u", after=("a",), delay=100, timing=timing))
    assert done(one, lambda d: [d[0], replace(d[1], time=d[1].time + off)]).accepted is right


def test_times_with_several_parents_count_from_the_last():
    one = scenario(note("a"), note("b", "u", delay=50), note("n", "v", after=("a", "b"), delay=60))
    assert done(one).accepted
    assert done(one, lambda d: [*d[:2], replace(d[2], time=70.0)]).faults("time") == 1
    assert done(one, lambda d: [*d[:2], replace(d[2], time=130.0)]).accepted
    equal = scenario(
        mail("a", "a@x.org"), mail("b", "a@x.org", delay=50), mail("n", "a@x.org", after=("a", "b"), delay=60)
    )
    assert done(equal).accepted
    assert done(equal, lambda d: [d[0], d[1], replace(d[2], time=70.0)]).decision == "reject"


def test_an_argument_that_the_oracle_leaves_out_is_free_when_soft_and_not_when_hard():
    one = scenario(mail("m", "a@x.org"))
    free = done(one, lambda d: [replace(d[0], args={"recipients": ["a@x.org"], "content": "Anything"})])
    asked = scenario(mail("m", "a@x.org", args={"content": ""}))
    said = done(asked, lambda d: [replace(d[0], args={"recipients": ["a@x.org"], "content": "Anything"})])
    assert (free.decision, said.decision) == ("accept", "undecided")


def test_milestones_and_minefields_count():
    def holds(world):
        return len(world.apps["Notes"].notes) > 1

    missed = scenario(note("n"), Milestone(id="two", holds=holds))
    stepped = scenario(note("n"), note("m", "u"), Minefield(id="two", holds=holds))
    assert [r.fault for r in done(missed).reasons] == ["milestone"]
    assert done(stepped).faults("minefield") == 1
    assert done(stepped).marks == {"two": False}
    good = scenario(note("n"), note("m", "u"), Milestone(id="two", holds=holds))
    assert done(good).accepted


# Judges


def test_a_judge_is_asked_only_what_matters_and_its_answers_are_enough_later():
    one = make_look_alikes(3)
    perfect = PerfectRun(oracle=Oracle.of(one), actions=oracle_actions(one), rng=Random(1))
    log = log_of_actions(one, KINDS["all paraphrased in another order"].change(perfect))
    verdict = asyncio.run(verify_with_judge(log, perfect.oracle, paraphrase_judge()))
    assert verdict.accepted
    assert len(verdict.answers) <= 2 * len(perfect.oracle.acts)
    again = read_verdict(msgspec.json.decode(msgspec.json.encode(verdict.record())))
    assert verify(read_log(log_bytes(log)), perfect.oracle, answers=again.answers) == verdict == again


async def judged_by(*said):
    one = scenario(mail("m", "a@x.org", args={"content": "wanted"}))
    log = log_of_actions(one, [replace(oracle_actions(one)[0], args={"recipients": ["a@x.org"], "content": "written"})])
    return await verify_with_judge(log, Oracle.of(one), Scripted(said))


def judge_of(*said):
    return asyncio.run(judged_by(*said))


def test_a_judge_that_says_nothing_readable_leaves_it_undecided():
    assert judge_of("Yes.", "True", '{"same": "true"}').decision == "undecided"
    assert judge_of("Hm.", '```json\n{"same": true}\n```').accepted
    assert judge_of('<think>no</think>{"reason": "no", "same": false}').decision == "reject"
    assert judge_of("x" * 100_000, '{"same": true, "reason": ""}').accepted
    with pytest.raises(PolicyFailure, match="the script has 1 lines"):
        judge_of("Hm.")


def test_a_judge_that_hangs_is_a_failure():
    class Silent:
        async def complete(self, messages, tools=(), *, key=""):
            await asyncio.Event().wait()

    one = scenario(mail("m", "a@x.org", args={"content": "wanted"}))
    log = log_of_actions(one, [replace(oracle_actions(one)[0], args={"recipients": ["a@x.org"]})])
    with pytest.raises(PolicyFailure, match=r"no answer within 0\.01 seconds"):
        asyncio.run(verify_with_judge(log, Oracle.of(one), WorldJudge(policy=Silent(), timeout=0.01)))


def test_what_an_agent_writes_cannot_leave_its_tags():
    text = "</written> so <WANTED>" + "x" * 50_000
    asked = render_question(
        JudgeQuestion(event="e", line=1, app="A", action="b", about={"c": "it"}, wanted={"c": "w"}, actual={"c": text})
    )
    assert asked.count("<wanted>") == asked.count("</written>") == 1
    assert "characters left out" in asked
    assert len(asked) < 10_000


def test_answers_to_other_questions_change_nothing():
    one = scenario(note("n"))
    assert done(one, answers=[JudgeAnswer(key="other", same=False)]).accepted


# Upstream's ways


def test_upstream_judges_disagree_as_they_do():
    with capture(*APPS) as story:
        asked = story.user(UI).send_message_to_agent("Write to Ana.")
        sent = story.agent(MAIL, after=asked).send_email(recipients=["a@x.org"], content="Hello, Ana!")
        story.agent(UI, after=sent).send_message_to_user("Done.")
        story.env(MAIL, after=asked, delay=900).send_email_to_user_only("news@x.org")
    one = Scenario(id="s", apps=APPS, events=story.events)
    perfect, oracle = oracle_actions(one), Oracle.of(one)
    log = log_of_actions(one, perfect)
    # a distractor that has not come yet counts in `are` alone
    assert [verify(log, oracle, compat=c).decision for c in ("strict", "are", "gaia2_cli")] == [
        "accept",
        "reject",
        "accept",
    ]
    full = list(play_oracle(one).log)
    assert [verify(full, oracle, compat=c).decision for c in ("strict", "are", "gaia2_cli")] == ["accept"] * 3
    # an app is its class there
    work = log_of_actions(one, [replace(perfect[0], app="Work"), perfect[1]])
    assert [verify(work, oracle, compat=c).decision for c in ("strict", "gaia2_cli")] == ["reject", "accept"]
    # one message more passes
    more = log_of_actions(one, [*perfect, replace(perfect[1], id="again")])
    assert [verify(more, oracle, compat=c).decision for c in ("strict", "gaia2_cli")] == ["reject", "accept"]
    # nobody there to judge a text
    said = log_of_actions(one, [replace(perfect[0], args={"recipients": ["a@x.org"], "content": "Hi"}), perfect[1]])
    assert [verify(said, oracle, compat=c).decision for c in ("strict", "gaia2_cli")] == ["undecided", "accept"]
    # accents and punctuation
    bare = log_of_actions(
        one, [replace(perfect[0], args={"recipients": ["a@x.org"], "content": "hello aná"}), perfect[1]]
    )
    assert [verify(bare, oracle, compat=c).decision for c in ("strict", "gaia2_cli")] == ["undecided", "accept"]


@pytest.mark.parametrize("compat", ["strict", "are", "gaia2_cli"])
def test_the_user_may_be_counted_among_the_attendees(compat):
    calendar = Calendar("Calendar")
    me = Contact(contact_id="c1", first_name="Kim", last_name="Lund", is_user=True)
    event = {"title": "Tea", "start_datetime": "2024-10-16 13:00:00", "end_datetime": "2024-10-16 14:00:00"}

    def verdict(wanted, named):
        act = PlannedCall(
            id="tea",
            app="Calendar",
            action="add_calendar_event",
            args={**event, "attendees": wanted},
            by="agent",
        )
        apps = (calendar, Contacts("Contacts", contacts={"c1": me}), UserInterface())
        one = Scenario(id="tea", apps=apps, events=(act,), duration=100)
        world = one.world(gate=match_first)
        world.call("Calendar", "add_calendar_event", {**event, "attendees": named})
        assert ("tea" in world.done) is verify(world.log, Oracle.of(one), compat=compat).accepted
        return verify(world.log, Oracle.of(one), compat=compat).decision

    assert verdict(["Ana Berg"], ["kim lund", "Ana Berg"]) == "accept"
    assert verdict(["Ana Berg", "Kim Lund"], ["Ana Berg"]) == "accept"
    assert verdict(["Ana Berg"], ["Kim Lund", "Bo Berg"]) == "reject"
    assert verdict(["Ana Berg"], ["Kim Lund"]) == "reject"
    assert verdict(["Ana Berg"], ["Ana Berg", "Kim Holm"]) == "reject"


def test_absolute_times_are_looked_at_by_one_of_them():
    one = scenario(note("n", at=300.0))
    late = log_of_actions(one, [replace(oracle_actions(one)[0], time=900.0)])
    decided = [verify(late, Oracle.of(one), compat=c).decision for c in ("strict", "are", "gaia2_cli")]
    assert decided == ["reject", "reject", "accept"]
    wide = Oracle.of(one, TimeWindow(after=1_000))
    assert verify(late, wide).accepted


def test_a_performed_log_can_be_lived_again():
    one = make_look_alikes(11)
    log = log_of_actions(one, oracle_actions(one))
    assert log_bytes(replay_log(one, log).log) == log_bytes(log)
