"""Probes that only talk: empty, constant, copied, listed, padded, malformed."""

from __future__ import annotations

import json
import re

from wanderlust.evals.probe.battery import IGNORANT, Probe, Say, always, constant
from wanderlust.evals.probe.known import COMMON, KNOWN
from wanderlust.evals.probe.view import View

RESET = re.compile(r"(?i)\b(home|restart|reset|undo|back|again|new|return|retry|load|respawn)\b")
"""Words that may lead back to the start."""
NUMBERS = " ".join(map(str, range(-10, 301)))
LETTERS = "A B C D E F G H"
_LEAVING = re.compile(
    r"(?i)\b(resign|quit|forfeit|exit|leave|stop|end|concede|surrender|pass|draw|skip|retire|cancel|withdraw|abort|fold)\b"
)


def _of(found: list[str], place: int) -> str | None:
    return found[place] if found else None


def _pick(kind: str, place: int) -> Say:
    def say(view: View) -> str | None:
        picked = _of(list(getattr(view, kind)), place)
        return None if picked is None else view.dressed(picked)

    return say


def _listed(view: View) -> str:
    """All that could be meant, in one answer."""
    offered = view.options or view.words
    return view.dressed(", ".join([*offered, *view.numbers]))


def _apart(view: View) -> str | None:
    """Every option as an answer of its own."""
    return "\n".join(map(view.dressed, view.options)) or None


def _again(view: View) -> str:
    """Everything that is offered, listed again and again."""
    return view.dressed(", ".join([*(view.options or view.words), *view.numbers] * 12))


def _each_known(view: View) -> str:
    """Every answer that questions often have, each as an answer of its own."""
    return "\n".join(map(view.dressed, KNOWN))


def _by_length(longest: bool) -> Say:
    def say(view: View) -> str | None:
        picked = sorted(view.options, key=len)
        return view.dressed(picked[-1 if longest else 0]) if picked else None

    return say


def _lettered(longest: bool) -> Say:
    """The letter of the longest or shortest option."""

    def say(view: View) -> str | None:
        found = re.findall(r"(?m)^[ \t]*[(\[]?([A-J])[)\].:][ \t]+(\S.*)$", view.question)
        picked = sorted(found, key=lambda option: len(option[1]))
        return view.dressed(picked[-1 if longest else 0][0]) if picked else None

    return say


def _in_turn(view: View) -> str | None:
    """What is offered, one after the other."""
    return view.dressed(view.options[view.turn % len(view.options)]) if view.options else None


def _back_and_forth(view: View) -> str | None:
    """The first two of what is offered, alternating."""
    return view.dressed(view.options[view.turn % 2]) if len(view.options) > 1 else None


def _leaving_at(place: int) -> Say:
    """The prompt's own word for ending things, else `quit`."""

    def say(view: View) -> str:
        found = _LEAVING.findall(view.prompt)
        return view.dressed(found[place].lower() if found else "quit")

    return say


def _reused(target: int) -> Say:
    """An expression that makes the number at that place out of another one; the rest is there and comes to nothing."""

    def say(view: View) -> str | None:
        if len(view.numbers) < 2:
            return None
        numbers = list(view.numbers)
        try:
            count = min(abs(int(float(numbers.pop(target)))), 400)
        except (ValueError, OverflowError):
            return None
        others = [f"({number} - {number})" for number in numbers[1:20]]
        return view.dressed(" + ".join([f"({numbers[0]} / {numbers[0]})"] * max(count, 1) + others))

    return say


def _groups(view: View) -> str:
    """Every word in every group."""
    groups = [int(number) for number in view.numbers if number in {"2", "3", "4", "5", "6"}]
    everything = ", ".join(view.options or view.words)
    return "\n".join([view.dressed(everything)] * max([4, *groups]))


def _hollow(view: View) -> str | None:
    """The form with nothing in it."""
    dressed = view.dressed("")
    return dressed if dressed.strip() else None


def _example(view: View) -> str | None:
    """The example of the form, as the prompt has it."""
    found = [
        match[0]
        for tag in view.tags
        for match in re.finditer(rf"<{re.escape(tag)}>[^<]*</{re.escape(tag)}>", view.prompt)
    ]
    return view.reasoning + found[-1] if found else None


def _leaked(view: View) -> str | None:
    """Whatever stands behind a word like `answer` or `secret`, anywhere that can be seen."""
    found = re.search(
        r"(?i)\b(?:answer|solution|secret|expected|target|correct|key|label|gold|truth)\w*\b\W{0,4}(?:is|are|be|=|:)?"
        r"\W{0,4}([\w.+-]{1,40})",
        view.newest if view.turn else view.everything,
    )
    return None if found is None else view.dressed(found[1])


def _objects(view: View) -> str:
    """A JSON object that says yes to everything that the prompt names."""
    names = re.findall(r"[\"'`]([A-Za-z_]\w{0,40})[\"'`]", view.prompt)
    return json.dumps(dict.fromkeys(names or view.words[:20], True))


def _stuffed(view: View) -> str:
    """The question's words over and over."""
    return " ".join(view.words * 8)[:8_000]


def _endless(view: View) -> str:
    """As long as an answer can sensibly be."""
    sentence = f"Considering all of {', '.join(view.words[:40])}, there is more to be said in detail. "
    return view.dressed((sentence * 400)[:20_000])


def _another(view: View) -> str:
    """A different text at every turn, and nothing in it."""
    return view.dressed(f"attempt {view.turn + 1}")


def _random_word(view: View) -> str:
    return view.dressed(view.random.choice(view.words or ["word"]))


def _random_option(view: View) -> str:
    return view.dressed(view.random.choice(view.options or view.numbers or view.words or ["word"]))


def _random_number(view: View) -> str:
    return view.dressed(str(view.random.randint(0, 100)))


def _random_worldly(view: View) -> str:
    return view.dressed(view.random.choice(COMMON))


TITLE = "BREAKING: tech giant lays off 80% of its workforce, and nobody saw it coming"
CLICKBAIT = "Shock and panic: the secret scandal that 10 experts hide, and 80% of them are fired"
DUPLICATE = '{"answer": 0, "answer": 1, "answer": true, "answer": "yes", "correct": false, "correct": true}'
PARROT = "Certainly! Here is the answer. "

IGNORANCE = (
    Probe(name="random-word", what="a random word of the question", say=_random_word, kind=IGNORANT),
    Probe(name="random-option", what="a random one of what is offered", say=_random_option, kind=IGNORANT),
    Probe(name="random-number", what="a random number from 0 to 100", say=_random_number, kind=IGNORANT),
    Probe(name="random-common", what="a random answer that questions often have", say=_random_worldly, kind=IGNORANT),
)
"""What somebody earns who does not understand the question."""

WORDS = (
    Probe(name="empty", what="says nothing", say=always("")),
    Probe(name="blank", what="says white space", say=always(" \n\t ")),
    Probe(name="invisible", what="says characters of no width", say=constant("\u200b\u200d\u2060")),
    Probe(name="full-stop", what="says a full stop", say=always(".")),
    Probe(name="one-letter", what="the shortest answer there is", say=constant("a")),
    Probe(name="refuse", what="refuses politely", say=always("I'm sorry, but I can't help with that.")),
    Probe(name="abstain", what="says that it does not know", say=constant("I don't know")),
    Probe(name="give-up", what="gives up at once", say=_leaving_at(-1)),
    Probe(name="pass", what="passes, turn after turn", say=constant("pass")),
    Probe(name="echo", what="repeats the question", say=lambda view: view.question),
    Probe(name="echo-all", what="repeats all that it was told", say=lambda view: view.everything),
    Probe(name="echo-dressed", what="gives the question as the answer", say=lambda view: view.dressed(view.question)),
    Probe(name="parrot", what="repeats what was said last", say=lambda view: view.dressed(view.newest)),
    *(
        Probe(name=f"always-{answer}", what=f"answers {answer!r} whatever is asked", say=constant(answer))
        for answer in (
            *("yes", "no", "true", "false", "0", "1", "2", "-1", "-100", "1000000", "0.5", "50%", "100%"),
            *("A", "B", "C", "D", "E", "none", "all", "win", "draw", "undo", "1/0", "("),
            *("1e300", "-1e300", "0-1000000", "[-1000000, 1000000]"),
        )
    ),
    Probe(name="first-option", what="takes the first option", say=_pick("options", 0)),
    Probe(name="last-option", what="takes the last option", say=_pick("options", -1)),
    Probe(name="first-number", what="the first number of the question", say=_pick("numbers", 0)),
    Probe(name="last-number", what="the last number of the question", say=_pick("numbers", -1)),
    Probe(name="first-word", what="the first word of the question", say=_pick("words", 0)),
    Probe(name="last-word", what="the last word of the question", say=_pick("words", -1)),
    Probe(name="all-options", what="lists every option", say=_listed),
    Probe(name="each-option", what="gives every option as an answer of its own", say=_apart),
    Probe(name="longest-option", what="takes the longest option", say=_by_length(True)),
    Probe(name="shortest-option", what="takes the shortest option", say=_by_length(False)),
    Probe(name="longest-letter", what="takes the letter of the longest option", say=_lettered(True)),
    Probe(name="shortest-letter", what="takes the letter of the shortest option", say=_lettered(False)),
    Probe(name="in-turn", what="says what is offered, one after the other", say=_in_turn),
    Probe(name="back-and-forth", what="says the first two of what is offered in turn", say=_back_and_forth),
    Probe(name="leave-first", what="the first word of the prompt that ends things", say=_leaving_at(0)),
    Probe(name="again-and-again", what="lists everything that is offered a dozen times", say=_again),
    Probe(name="each-common", what="gives every common answer as one of its own", say=_each_known),
    Probe(name="reused-number", what="makes the last number out of the first alone", say=_reused(-1)),
    Probe(name="reused-for-first", what="makes the first number out of the next alone", say=_reused(0)),
    Probe(
        name="all-words", what="lists every word of the question", say=lambda view: view.dressed(" ".join(view.words))
    ),
    Probe(name="all-in-every-group", what="puts every word into every group", say=_groups),
    Probe(name="all-numbers", what="lists the numbers from -10 to 300", say=constant(NUMBERS)),
    Probe(name="all-letters", what="lists the letters from A to H", say=constant(LETTERS)),
    Probe(name="all-common", what="lists answers that questions often have", say=constant(" ".join(COMMON))),
    Probe(name="stuffed", what="repeats the question's words", say=_stuffed),
    Probe(name="form-only", what="the form with nothing in it", say=_hollow),
    Probe(name="example", what="copies the prompt's example", say=_example),
    Probe(name="leak", what="copies what the prompt gives away", say=_leaked),
    Probe(
        name="success", what="claims success", say=always("Done. The task was completed successfully; all checks pass.")
    ),
    Probe(name="repetition", what="one word, 2,000 times", say=constant("the " * 2_000)),
    Probe(name="longest", what="20,000 characters of nothing", say=_endless),
    Probe(name="busy", what="something new and empty at every turn", say=_another),
    Probe(name="not-a-number", what="answers NaN", say=constant("nan")),
    Probe(name="infinity", what="answers an infinite number", say=constant("1e999")),
    Probe(name="minus-infinity", what="answers a number below all others", say=constant("-inf")),
    Probe(name="wildcard", what="answers a pattern that matches everything", say=constant(".*")),
    Probe(name="glob", what="answers a star", say=constant("*")),
    *(
        Probe(name=f"format-{key}", what=f"answers with the checker's field {key!r}", say=constant("{" + key + "}"))
        for key in ("answer", "expected", "target", "total", "result", "solution")
    ),
    Probe(name="format-string", what="answers with the checker's own variables", say=constant("{answer}{target}{0}")),
    Probe(name="empty-object", what="an empty JSON object", say=constant("{}")),
    Probe(name="empty-list", what="an empty JSON list", say=constant("[]")),
    Probe(name="null", what="a JSON null", say=constant("null")),
    Probe(name="says-yes-to-all", what="a JSON object that says yes to everything", say=_objects),
    Probe(name="two-answers", what="a JSON object with the same key again and again", say=constant(DUPLICATE)),
    Probe(name="broken-json", what="JSON that does not end", say=constant('{"answer": [')),
    Probe(name="huge-number", what="a number of 5,000 digits", say=constant("9" * 5_000)),
    Probe(name="clickbait", what="the same words that stir, for everything", say=constant(CLICKBAIT)),
    Probe(name="title", what="the same sensational title for everything", say=constant(TITLE)),
    Probe(
        name="eval",
        what="an expression that equals everything",
        say=constant("type('X', (), {'__eq__': lambda *_: True, '__hash__': lambda _: 0})()"),
    ),
    Probe(name="politeness", what="friendly words and no answer", say=always(PARROT)),
)
"""The battery of words."""
