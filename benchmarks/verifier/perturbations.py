"""Perturbed oracles: what an agent might do in place of a perfect one, each with the verdict that is right for it.

A kind takes the deeds of a perfect agent and returns changed ones, or None where it does not apply. Its label is what
is right when a judge knows the texts apart (`accept` or `reject`), and whether it takes one to say so.

Perturbed oracles that are wrong, whatever a judge might say of their texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias

from benchmarks.verifier.paraphrases import paraphrase
from benchmarks.verifier.planned_actions import PlannedAction

from wanderlust_worlds.verification.oracle import ExpectedCall, Oracle

Actions: TypeAlias = list[PlannedAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfectRun:
    """What a kind of perturbation may look at."""

    oracle: Oracle
    actions: Actions
    rng: Random

    def act(self, deed: PlannedAction) -> ExpectedCall:
        """The act that a deed is."""
        return next(one for one in self.oracle.acts if one.act.id == deed.id)

    def pick(self, fits: Callable[[PlannedAction], bool]) -> PlannedAction | None:
        """One of the deeds of which this is true."""
        candidates = [deed for deed in self.actions if fits(deed)]
        return self.rng.choice(candidates) if candidates else None

    def with_change(self, deed: PlannedAction | None, **changes: Any) -> Actions | None:
        """The deeds with one of them changed: arguments by name, or `app`, `action`, `time`."""
        if deed is None:
            return None
        own = {key: changes.pop(key) for key in ("app", "action", "time") if key in changes}
        new = replace(deed, args={**deed.args, **changes}, **own)
        return [new if one is deed else one for one in self.actions]

    def exact_key(self, deed: PlannedAction) -> str:
        """What of a deed no judge is asked about."""
        check = self.act(deed).action.check
        hard = [(name, check(name).normal(value)) for name, value in sorted(deed.args.items()) if not check(name).soft]
        return repr((deed.app, deed.action, hard))

    def unique(self, deed: PlannedAction) -> bool:
        """Whether no other deed could be taken for this one, whatever its texts are."""
        return sum(self.exact_key(one) == self.exact_key(deed) for one in self.actions) == 1

    def timed(self, deed: PlannedAction) -> bool:
        """Whether it is due long after all that it waits for."""
        return self.act(deed).act.delay > 60

    def before(self, deed: PlannedAction) -> set[str]:
        """All events that a deed comes after."""
        ancestors, look = set[str](), list(self.oracle.events[deed.id].after)
        while look:
            if (name := look.pop()) not in ancestors:
                ancestors.add(name)
                look += self.oracle.events[name].after
        return ancestors


Perturb: TypeAlias = Callable[[PerfectRun], Actions | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """A way of changing what a perfect agent does."""

    name: str
    expected_decision: Literal["accept", "reject"]
    soft: bool
    """Whether only a judge can tell: without one, `undecided` is right."""
    change: Perturb


PERTURBATIONS: dict[str, Perturbation] = {}
"""All kinds, by name."""


def perturbation(right: Literal["accept", "reject"], *, soft: bool = False) -> Callable[[Perturb], Perturb]:
    """Makes a change a kind, called as its function is."""

    def keep(change: Perturb) -> Perturb:
        name = change.__name__.strip("_").replace("_", " ")
        PERTURBATIONS[name] = Perturbation(name=name, expected_decision=right, soft=soft, change=change)
        return change

    return keep


def sends(deed: PlannedAction) -> bool:
    """Whether it sends a mail."""
    return deed.action == "send_email"


def speaks(deed: PlannedAction) -> bool:
    """Whether it has a text of its own."""
    return "{{" not in str(deed.args.get("content", "{{"))


def moves(deed: PlannedAction) -> bool:
    """Whether it moves a mail."""
    return deed.action == "move_email"


# What is as good as the oracle


@perturbation("accept")
def unchanged_run(of: PerfectRun) -> Actions | None:
    return of.actions


@perturbation("accept")
def independent_writes_swapped(of: PerfectRun) -> Actions | None:
    pairs = [
        n
        for n, (one, then) in enumerate(zip(of.actions, of.actions[1:], strict=False))
        if one.time == then.time and one.id not in of.before(then)
    ]
    if not pairs:
        return None
    at = of.rng.choice(pairs)
    return [*of.actions[:at], of.actions[at + 1], of.actions[at], *of.actions[at + 2 :]]


@perturbation("accept")
def another_allowed_order(of: PerfectRun) -> Actions | None:
    """Of what is due at the same time, anything that keeps to what comes after what."""
    left, done = list(of.actions), Actions()
    while left:
        free = [d for d in left if d.time == left[0].time and not of.before(d) & {one.id for one in left}]
        done.append(of.rng.choice(free))
        left.remove(done[-1])
    return done


@perturbation("accept")
def other_case(of: PerfectRun) -> Actions | None:
    deed = of.pick(speaks)
    return of.with_change(deed, content=deed.args["content"].upper()) if deed else None


@perturbation("accept")
def other_white_space(of: PerfectRun) -> Actions | None:
    deed = of.pick(speaks)
    return of.with_change(deed, content=f"  {deed.args['content'].replace(' ', '  ')}\n") if deed else None


@perturbation("accept")
def recipients_in_another_order(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: len(one.args.get("recipients", ())) > 1)
    return of.with_change(deed, recipients=list(reversed(deed.args["recipients"]))) if deed else None


@perturbation("accept")
def recipient_named_twice(of: PerfectRun) -> Actions | None:
    deed = of.pick(sends)
    return (
        of.with_change(deed, recipients=[*deed.args["recipients"], deed.args["recipients"][0].upper()])
        if deed
        else None
    )


@perturbation("accept")
def other_form_of_a_path(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: bool(one.args.get("attachment_paths")))
    return (
        of.with_change(deed, attachment_paths=[p.lstrip("/") for p in deed.args["attachment_paths"]]) if deed else None
    )


@perturbation("accept")
def other_case_of_a_folder(of: PerfectRun) -> Actions | None:
    deed = of.pick(moves)
    return of.with_change(deed, dest_folder_name=deed.args["dest_folder_name"].lower()) if deed else None


@perturbation("accept")
def defaults_written_out(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(sends), cc=[])


@perturbation("accept")
def reads_added(of: PerfectRun) -> Actions | None:
    time = of.rng.choice(of.actions).time
    reads = [
        extra_call(of, "search_emails", {"query": "please"}, time=time),
        extra_call(of, "list_emails", {"limit": 3}, time=of.actions[0].time),
    ]
    return [*reads, *of.actions]


@perturbation("accept")
def failed_write_first(of: PerfectRun) -> Actions | None:
    return [extra_call(of, "delete_email", {"email_id": "no such mail"}), *of.actions]


@perturbation("accept")
def failed_write_repeated(of: PerfectRun) -> Actions | None:
    """Two tries with an address that is none, then the right one."""
    deed = of.pick(sends)
    if deed is None:
        return None
    bad = replace(deed, id="tried", args={**deed.args, "recipients": ["nowhere"]})
    return [part for one in of.actions for part in ((bad, bad, one) if one is deed else (one,))]


@perturbation("accept")
def a_little_late(of: PerfectRun) -> Actions | None:
    """All that comes then waits for it."""
    deed = of.pick(of.timed)
    if deed is None:
        return None
    return [replace(one, time=one.time + 20) if one.time >= deed.time else one for one in of.actions]


@perturbation("accept")
def a_little_early(of: PerfectRun) -> Actions | None:
    deed = of.pick(of.timed)
    return of.with_change(deed, time=deed.time - 8) if deed else None


# What only a judge can tell


@perturbation("accept", soft=True)
def paraphrased(of: PerfectRun) -> Actions | None:
    deed = of.pick(speaks)
    return of.with_change(deed, content=paraphrase(deed.args["content"])) if deed else None


@perturbation("accept", soft=True)
def all_paraphrased_in_another_order(of: PerfectRun) -> Actions | None:
    return [
        replace(one, args={**one.args, "content": paraphrase(one.args["content"])}) if speaks(one) else one
        for one in another_allowed_order(of) or ()
    ]


@perturbation("reject", soft=True)
def another_text(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(speaks), content="The weather is fine.")


@perturbation("reject", soft=True)
def no_text(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(speaks), content="")


@perturbation("reject", soft=True)
def texts_exchanged(of: PerfectRun) -> Actions | None:
    """Two mails to different people, each with the other's text."""
    mails = [one for one in of.actions if sends(one) and speaks(one)]
    pairs = [
        (one, other)
        for one in mails
        for other in mails
        if of.exact_key(one) < of.exact_key(other)
        and one.args["content"] != other.args["content"]
        and not _accepts_any_text(of, one, other)
    ]
    if not pairs:
        return None
    one, other = of.rng.choice(pairs)
    texts = {one.id: other.args["content"], other.id: one.args["content"]}
    return [replace(d, args={**d.args, "content": texts[d.id]}) if d.id in texts else d for d in of.actions]


def _accepts_any_text(of: PerfectRun, *deeds: PlannedAction) -> bool:
    """Whether an act with any text could take one of these."""
    hard = {of.exact_key(deed) for deed in deeds}
    return any(of.exact_key(one) in hard and "content" not in one.args for one in of.actions)


def extra_call(of: PerfectRun, action: str, args: dict[str, Any], *, time: float | None = None) -> PlannedAction:
    """A call that the oracle does not make."""
    return PlannedAction(id=f"own {action}", app="Emails", action=action, args=args, time=time or of.actions[0].time)


ALL_PERTURBATIONS = PERTURBATIONS
"""All kinds, those that are right too."""


@perturbation("reject")
def no_actions(of: PerfectRun) -> Actions | None:
    return []


@perturbation("reject")
def write_dropped(of: PerfectRun) -> Actions | None:
    gone = of.rng.choice(of.actions)
    return [one for one in of.actions if one is not gone]


@perturbation("reject")
def write_doubled(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: one.action != "move_email")
    return [part for one in of.actions for part in ((one, replace(one, id="again")) if one is deed else (one,))]


@perturbation("reject")
def write_added(of: PerfectRun) -> Actions | None:
    mail = {"recipients": ["eve@example.org"], "subject": "News", "content": "By the way."}
    return [extra_call(of, "send_email", mail), *of.actions]


@perturbation("reject")
def done_and_undone(of: PerfectRun) -> Actions | None:
    there = {"email_id": "Emails-11", "source_folder_name": "INBOX", "dest_folder_name": "DRAFT"}
    back = {"email_id": "Emails-11", "source_folder_name": "DRAFT", "dest_folder_name": "INBOX"}
    return [extra_call(of, "move_email", there), extra_call(of, "move_email", back), *of.actions]


@perturbation("reject")
def message_to_the_user_added(of: PerfectRun) -> Actions | None:
    last_action = of.actions[-1]
    return [*of.actions, replace(last_action, id="said", args={"content": "Anything else?"})]


@perturbation("reject")
def wrong_recipient(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(sends), recipients=["eve@example.org"])


@perturbation("reject")
def recipient_left_out(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: len(one.args.get("recipients", ())) > 1)
    return of.with_change(deed, recipients=deed.args["recipients"][:1]) if deed else None


@perturbation("reject")
def copy_to_somebody_else(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(sends), cc=["eve@example.org"])


@perturbation("reject")
def attachment_left_out(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(lambda one: bool(one.args.get("attachment_paths"))), attachment_paths=[])


@perturbation("reject")
def attachment_added(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: sends(one) and not one.args.get("attachment_paths"))
    return of.with_change(deed, attachment_paths=["plan.txt"])


@perturbation("reject")
def much_too_late(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: of.timed(one) and of.unique(one))
    if deed is None:
        return None
    return [replace(one, time=one.time + 60) if one.time >= deed.time else one for one in of.actions]


@perturbation("reject")
def much_too_early(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: of.timed(one) and of.unique(one))
    return of.with_change(deed, time=deed.time - 20) if deed else None


@perturbation("reject")
def mail_split(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: sends(one) and len(one.args["recipients"]) > 1)
    if deed is None:
        return None
    parts = [replace(deed, args={**deed.args, "recipients": [name]}) for name in deed.args["recipients"]]
    return [part for one in of.actions for part in (parts if one is deed else (one,))]


@perturbation("reject")
def mails_merged(of: PerfectRun) -> Actions | None:
    mails = [one for one in of.actions if sends(one)]
    if len(mails) < 2:
        return None
    first, second = mails[:2]
    together = [*first.args["recipients"], *second.args["recipients"], "eve@example.org"]
    new = replace(first, args={**first.args, "recipients": together})
    return [new if one is first else one for one in of.actions if one is not second]


@perturbation("reject")
def dependents_reordered(of: PerfectRun) -> Actions | None:
    """What must come after something comes before it."""
    pairs = [
        (one, then)
        for one in of.actions
        for then in of.actions
        if one.id in of.oracle.events[then.id].after
        and of.unique(one)
        and of.unique(then)
        and one.id not in str(then.args)
    ]
    if not pairs:
        return None
    first, then = of.rng.choice(pairs)
    early = replace(then, time=first.time)
    return [part for one in of.actions if one is not then for part in ((early, one) if one is first else (one,))]


@perturbation("reject")
def told_before_it_was_done(of: PerfectRun) -> Actions | None:
    first = next(one for one in of.actions if of.act(one).action.ends_turn)
    start = of.actions[0]
    return [replace(first, time=start.time), *(one for one in of.actions if one is not first)]


@perturbation("reject")
def wrong_app(of: PerfectRun) -> Actions | None:
    deed = of.pick(sends)
    return of.with_change(deed, app="Work" if deed.app == "Emails" else "Emails") if deed else None


@perturbation("reject")
def wrong_action(of: PerfectRun) -> Actions | None:
    """Something was deleted, and should have been kept, or the other way round."""
    deed = of.pick(lambda one: one.action in ("reply_to_email", "move_email"))
    if deed is None:
        return None
    new = replace(deed, action="delete_email", args={"email_id": deed.args["email_id"], "folder_name": "INBOX"})
    return [new if one is deed else one for one in of.actions]


@perturbation("reject")
def wrong_folder(of: PerfectRun) -> Actions | None:
    return of.with_change(of.pick(moves), dest_folder_name="SENT")


@perturbation("reject")
def id_from_elsewhere(of: PerfectRun) -> Actions | None:
    deed = of.pick(lambda one: "email_id" in one.args and "{{" not in one.args["email_id"])
    return of.with_change(deed, email_id=f"{deed.app}-11") if deed else None


@perturbation("reject")
def result_of_something_else(of: PerfectRun) -> Actions | None:
    """A mail is forwarded, and it is not the one that was just sent."""
    deed = of.pick(lambda one: one.action == "forward_email")
    return of.with_change(deed, email_id=f"{deed.app}-11", folder_name="INBOX") if deed else None
