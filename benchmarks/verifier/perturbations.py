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
from benchmarks.verifier.planned_actions import Deed

from wanderlust.worlds.verify.oracle import ExpectedCall, Oracle

Deeds: TypeAlias = list[Deed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Perfect:
    """What a kind of perturbation may look at."""

    oracle: Oracle
    deeds: Deeds
    rng: Random

    def act(self, deed: Deed) -> ExpectedCall:
        """The act that a deed is."""
        return next(one for one in self.oracle.acts if one.act.id == deed.id)

    def pick(self, fits: Callable[[Deed], bool]) -> Deed | None:
        """One of the deeds of which this is true."""
        found = [deed for deed in self.deeds if fits(deed)]
        return self.rng.choice(found) if found else None

    def changed(self, deed: Deed | None, **changes: Any) -> Deeds | None:
        """The deeds with one of them changed: arguments by name, or `app`, `action`, `time`."""
        if deed is None:
            return None
        own = {key: changes.pop(key) for key in ("app", "action", "time") if key in changes}
        new = replace(deed, args={**deed.args, **changes}, **own)
        return [new if one is deed else one for one in self.deeds]

    def hard(self, deed: Deed) -> str:
        """What of a deed no judge is asked about."""
        check = self.act(deed).action.check
        hard = [(name, check(name).normal(value)) for name, value in sorted(deed.args.items()) if not check(name).soft]
        return repr((deed.app, deed.action, hard))

    def unique(self, deed: Deed) -> bool:
        """Whether no other deed could be taken for this one, whatever its texts are."""
        return sum(self.hard(one) == self.hard(deed) for one in self.deeds) == 1

    def timed(self, deed: Deed) -> bool:
        """Whether it is due long after all that it waits for."""
        return self.act(deed).act.delay > 60

    def before(self, deed: Deed) -> set[str]:
        """All events that a deed comes after."""
        found, look = set[str](), list(self.oracle.events[deed.id].after)
        while look:
            if (name := look.pop()) not in found:
                found.add(name)
                look += self.oracle.events[name].after
        return found


Change: TypeAlias = Callable[[Perfect], Deeds | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way of changing what a perfect agent does."""

    name: str
    right: Literal["accept", "reject"]
    soft: bool
    """Whether only a judge can tell: without one, `undecided` is right."""
    change: Change


KINDS: dict[str, Kind] = {}
"""All kinds, by name."""


def kind(right: Literal["accept", "reject"], *, soft: bool = False) -> Callable[[Change], Change]:
    """Makes a change a kind, called as its function is."""

    def keep(change: Change) -> Change:
        name = change.__name__.strip("_").replace("_", " ")
        KINDS[name] = Kind(name=name, right=right, soft=soft, change=change)
        return change

    return keep


def sends(deed: Deed) -> bool:
    """Whether it sends a mail."""
    return deed.action == "send_email"


def speaks(deed: Deed) -> bool:
    """Whether it has a text of its own."""
    return "{{" not in str(deed.args.get("content", "{{"))


def moves(deed: Deed) -> bool:
    """Whether it moves a mail."""
    return deed.action == "move_email"


# What is as good as the oracle


@kind("accept")
def exact(of: Perfect) -> Deeds | None:
    return of.deeds


@kind("accept")
def independent_writes_swapped(of: Perfect) -> Deeds | None:
    pairs = [
        n
        for n, (one, then) in enumerate(zip(of.deeds, of.deeds[1:], strict=False))
        if one.time == then.time and one.id not in of.before(then)
    ]
    if not pairs:
        return None
    at = of.rng.choice(pairs)
    return [*of.deeds[:at], of.deeds[at + 1], of.deeds[at], *of.deeds[at + 2 :]]


@kind("accept")
def another_allowed_order(of: Perfect) -> Deeds | None:
    """Of what is due at the same time, anything that keeps to what comes after what."""
    left, done = list(of.deeds), Deeds()
    while left:
        free = [d for d in left if d.time == left[0].time and not of.before(d) & {one.id for one in left}]
        done.append(of.rng.choice(free))
        left.remove(done[-1])
    return done


@kind("accept")
def other_case(of: Perfect) -> Deeds | None:
    deed = of.pick(speaks)
    return of.changed(deed, content=deed.args["content"].upper()) if deed else None


@kind("accept")
def other_white_space(of: Perfect) -> Deeds | None:
    deed = of.pick(speaks)
    return of.changed(deed, content=f"  {deed.args['content'].replace(' ', '  ')}\n") if deed else None


@kind("accept")
def recipients_in_another_order(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: len(one.args.get("recipients", ())) > 1)
    return of.changed(deed, recipients=list(reversed(deed.args["recipients"]))) if deed else None


@kind("accept")
def recipient_named_twice(of: Perfect) -> Deeds | None:
    deed = of.pick(sends)
    return of.changed(deed, recipients=[*deed.args["recipients"], deed.args["recipients"][0].upper()]) if deed else None


@kind("accept")
def other_form_of_a_path(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: bool(one.args.get("attachment_paths")))
    return of.changed(deed, attachment_paths=[p.lstrip("/") for p in deed.args["attachment_paths"]]) if deed else None


@kind("accept")
def other_case_of_a_folder(of: Perfect) -> Deeds | None:
    deed = of.pick(moves)
    return of.changed(deed, dest_folder_name=deed.args["dest_folder_name"].lower()) if deed else None


@kind("accept")
def defaults_written_out(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(sends), cc=[])


@kind("accept")
def reads_added(of: Perfect) -> Deeds | None:
    time = of.rng.choice(of.deeds).time
    reads = [
        own_call(of, "search_emails", {"query": "please"}, time=time),
        own_call(of, "list_emails", {"limit": 3}, time=of.deeds[0].time),
    ]
    return [*reads, *of.deeds]


@kind("accept")
def failed_write_first(of: Perfect) -> Deeds | None:
    return [own_call(of, "delete_email", {"email_id": "no such mail"}), *of.deeds]


@kind("accept")
def failed_write_repeated(of: Perfect) -> Deeds | None:
    """Two tries with an address that is none, then the right one."""
    deed = of.pick(sends)
    if deed is None:
        return None
    bad = replace(deed, id="tried", args={**deed.args, "recipients": ["nowhere"]})
    return [part for one in of.deeds for part in ((bad, bad, one) if one is deed else (one,))]


@kind("accept")
def a_little_late(of: Perfect) -> Deeds | None:
    """All that comes then waits for it."""
    deed = of.pick(of.timed)
    if deed is None:
        return None
    return [replace(one, time=one.time + 20) if one.time >= deed.time else one for one in of.deeds]


@kind("accept")
def a_little_early(of: Perfect) -> Deeds | None:
    deed = of.pick(of.timed)
    return of.changed(deed, time=deed.time - 8) if deed else None


# What only a judge can tell


@kind("accept", soft=True)
def paraphrased(of: Perfect) -> Deeds | None:
    deed = of.pick(speaks)
    return of.changed(deed, content=paraphrase(deed.args["content"])) if deed else None


@kind("accept", soft=True)
def all_paraphrased_in_another_order(of: Perfect) -> Deeds | None:
    return [
        replace(one, args={**one.args, "content": paraphrase(one.args["content"])}) if speaks(one) else one
        for one in another_allowed_order(of) or ()
    ]


@kind("reject", soft=True)
def another_text(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(speaks), content="The weather is fine.")


@kind("reject", soft=True)
def no_text(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(speaks), content="")


@kind("reject", soft=True)
def texts_exchanged(of: Perfect) -> Deeds | None:
    """Two mails to different people, each with the other's text."""
    found = [one for one in of.deeds if sends(one) and speaks(one)]
    pairs = [
        (one, other)
        for one in found
        for other in found
        if of.hard(one) < of.hard(other)
        and one.args["content"] != other.args["content"]
        and not _left_open(of, one, other)
    ]
    if not pairs:
        return None
    one, other = of.rng.choice(pairs)
    texts = {one.id: other.args["content"], other.id: one.args["content"]}
    return [replace(d, args={**d.args, "content": texts[d.id]}) if d.id in texts else d for d in of.deeds]


def _left_open(of: Perfect, *deeds: Deed) -> bool:
    """Whether an act with any text could take one of these."""
    hard = {of.hard(deed) for deed in deeds}
    return any(of.hard(one) in hard and "content" not in one.args for one in of.deeds)


def own_call(of: Perfect, action: str, args: dict[str, Any], *, time: float | None = None) -> Deed:
    """A call that the oracle does not make."""
    return Deed(id=f"own {action}", app="Emails", action=action, args=args, time=time or of.deeds[0].time)


ALL = KINDS
"""All kinds, those that are right too."""


@kind("reject")
def nothing_done(of: Perfect) -> Deeds | None:
    return []


@kind("reject")
def write_dropped(of: Perfect) -> Deeds | None:
    gone = of.rng.choice(of.deeds)
    return [one for one in of.deeds if one is not gone]


@kind("reject")
def write_doubled(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: one.action != "move_email")
    return [part for one in of.deeds for part in ((one, replace(one, id="again")) if one is deed else (one,))]


@kind("reject")
def write_added(of: Perfect) -> Deeds | None:
    mail = {"recipients": ["eve@example.org"], "subject": "News", "content": "By the way."}
    return [own_call(of, "send_email", mail), *of.deeds]


@kind("reject")
def done_and_undone(of: Perfect) -> Deeds | None:
    there = {"email_id": "Emails-11", "source_folder_name": "INBOX", "dest_folder_name": "DRAFT"}
    back = {"email_id": "Emails-11", "source_folder_name": "DRAFT", "dest_folder_name": "INBOX"}
    return [own_call(of, "move_email", there), own_call(of, "move_email", back), *of.deeds]


@kind("reject")
def message_to_the_user_added(of: Perfect) -> Deeds | None:
    said = of.deeds[-1]
    return [*of.deeds, replace(said, id="said", args={"content": "Anything else?"})]


@kind("reject")
def wrong_recipient(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(sends), recipients=["eve@example.org"])


@kind("reject")
def recipient_left_out(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: len(one.args.get("recipients", ())) > 1)
    return of.changed(deed, recipients=deed.args["recipients"][:1]) if deed else None


@kind("reject")
def copy_to_somebody_else(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(sends), cc=["eve@example.org"])


@kind("reject")
def attachment_left_out(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(lambda one: bool(one.args.get("attachment_paths"))), attachment_paths=[])


@kind("reject")
def attachment_added(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: sends(one) and not one.args.get("attachment_paths"))
    return of.changed(deed, attachment_paths=["plan.txt"])


@kind("reject")
def much_too_late(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: of.timed(one) and of.unique(one))
    if deed is None:
        return None
    return [replace(one, time=one.time + 60) if one.time >= deed.time else one for one in of.deeds]


@kind("reject")
def much_too_early(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: of.timed(one) and of.unique(one))
    return of.changed(deed, time=deed.time - 20) if deed else None


@kind("reject")
def split(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: sends(one) and len(one.args["recipients"]) > 1)
    if deed is None:
        return None
    parts = [replace(deed, args={**deed.args, "recipients": [name]}) for name in deed.args["recipients"]]
    return [part for one in of.deeds for part in (parts if one is deed else (one,))]


@kind("reject")
def merged(of: Perfect) -> Deeds | None:
    found = [one for one in of.deeds if sends(one)]
    if len(found) < 2:
        return None
    first, second = found[:2]
    together = [*first.args["recipients"], *second.args["recipients"], "eve@example.org"]
    new = replace(first, args={**first.args, "recipients": together})
    return [new if one is first else one for one in of.deeds if one is not second]


@kind("reject")
def dependents_reordered(of: Perfect) -> Deeds | None:
    """What must come after something comes before it."""
    pairs = [
        (one, then)
        for one in of.deeds
        for then in of.deeds
        if one.id in of.oracle.events[then.id].after
        and of.unique(one)
        and of.unique(then)
        and one.id not in str(then.args)
    ]
    if not pairs:
        return None
    first, then = of.rng.choice(pairs)
    early = replace(then, time=first.time)
    return [part for one in of.deeds if one is not then for part in ((early, one) if one is first else (one,))]


@kind("reject")
def told_before_it_was_done(of: Perfect) -> Deeds | None:
    first = next(one for one in of.deeds if of.act(one).action.ends_turn)
    start = of.deeds[0]
    return [replace(first, time=start.time), *(one for one in of.deeds if one is not first)]


@kind("reject")
def wrong_app(of: Perfect) -> Deeds | None:
    deed = of.pick(sends)
    return of.changed(deed, app="Work" if deed.app == "Emails" else "Emails") if deed else None


@kind("reject")
def wrong_action(of: Perfect) -> Deeds | None:
    """Something was deleted, and should have been kept, or the other way round."""
    deed = of.pick(lambda one: one.action in ("reply_to_email", "move_email"))
    if deed is None:
        return None
    new = replace(deed, action="delete_email", args={"email_id": deed.args["email_id"], "folder_name": "INBOX"})
    return [new if one is deed else one for one in of.deeds]


@kind("reject")
def wrong_folder(of: Perfect) -> Deeds | None:
    return of.changed(of.pick(moves), dest_folder_name="SENT")


@kind("reject")
def id_from_elsewhere(of: Perfect) -> Deeds | None:
    deed = of.pick(lambda one: "email_id" in one.args and "{{" not in one.args["email_id"])
    return of.changed(deed, email_id=f"{deed.app}-11") if deed else None


@kind("reject")
def result_of_something_else(of: Perfect) -> Deeds | None:
    """A mail is forwarded, and it is not the one that was just sent."""
    deed = of.pick(lambda one: one.action == "forward_email")
    return of.changed(deed, email_id=f"{deed.app}-11", folder_name="INBOX") if deed else None
