"""Perturbed oracles that are wrong, whatever a judge might say of their texts."""

from __future__ import annotations

from dataclasses import replace

from wanderlust.worlds.perturb import KINDS, Deeds, Perfect, kind, moves, own_call, sends

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
