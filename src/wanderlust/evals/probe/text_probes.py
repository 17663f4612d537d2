"""Answers that many questions have.

Probes that only talk: empty, constant, copied, listed, padded, malformed.

Probes that lean on what a checker lets pass: everything at once, nothing worked out, whole ranges, codes.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re

from wanderlust.evals.probe.base import IGNORANT, Probe, Say, View, always, constant

_WORLDLY = (
    "yes no true false none left right up down north south east west red green blue black white positive negative "
    "neutral spam ham entailment contradiction 0 1 2 3 4 5 6 7 8 9 10 A B C D E F"
)
_CAPITALS = (
    "London Paris Berlin Madrid Rome Lisbon Vienna Bern Brussels Amsterdam Copenhagen Stockholm Oslo Helsinki "
    "Warsaw Prague Budapest Bucharest Sofia Athens Dublin Reykjavik Kyiv Moscow Ankara Cairo Tunis Algiers Rabat "
    "Nairobi Accra Lagos Abuja Pretoria Addis-Ababa Dakar Tokyo Beijing Seoul Delhi Bangkok Hanoi Jakarta Manila "
    "Canberra Wellington Ottawa Washington Mexico-City Havana Lima Bogota Santiago Brasilia Caracas Quito "
    "Montevideo Tehran Baghdad Riyadh"
)
_COUNTRIES = (
    "England Britain France Germany Spain Italy Portugal Austria Switzerland Belgium Netherlands Denmark Sweden "
    "Norway Finland Poland Czechia Hungary Romania Bulgaria Greece Ireland Iceland Ukraine Russia Turkey Egypt "
    "Tunisia Algeria Morocco Kenya Ghana Nigeria Ethiopia Senegal Japan China Korea India Thailand Vietnam "
    "Indonesia Philippines Australia Canada America USA Mexico Cuba Peru Colombia Chile Brazil Argentina "
    "Venezuela Ecuador Uruguay Iran Iraq Israel"
)
_CALENDAR = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August "
    "September October November December"
)
COMMON = _WORLDLY.split()
"""Labels, directions, colours, numbers, letters."""
KNOWN = [name.replace("-", " ") for name in f"{_WORLDLY} {_CAPITALS} {_COUNTRIES} {_CALENDAR}".split()]
"""Those, and capitals, countries, days and months."""


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


_SUM = re.compile(r"[(\d][\d\s.()+*/^\u00d7\u00f7%-]{2,200}[\d)]")
_CODED = re.compile(r"\b[A-Za-z0-9+/]{4,400}={0,2}")
DEEP = 5_000
"""Brackets in each other."""


def _going_back(view: View) -> str | None:
    found = RESET.findall(view.prompt)
    return view.dressed(found[0].lower()) if found else None


def _spelling(view: View) -> str:
    return view.dressed(chr(ord("a") + view.turn % 26))


def _joined(between: str) -> Say:
    def say(view: View) -> str | None:
        return view.dressed(between.join(view.options)) if view.options else None

    return say


def _ends(view: View) -> str | None:
    offered = view.options or view.words
    return view.dressed(f"{offered[0]} -> {offered[-1]}") if len(offered) > 1 else None


def _trivial(form: str) -> Say:
    """Something true that says nothing."""

    def say(view: View) -> str | None:
        return view.dressed(form.format(view.numbers[-1])) if view.numbers else None

    return say


def _unevaluated(view: View) -> str | None:
    """The longest expression of the question, as it stands."""
    found = [one.strip() for one in _SUM.findall(view.question) if re.search(r"\d\s*[-+*/^%\u00d7\u00f7]\s*[(\d]", one)]
    return view.dressed(max(found, key=len)) if found else None


def _decoded(view: View) -> str | None:
    """What stands in the question in base64, in hexadecimal digits, backwards or by ROT13."""
    words = [one for one in _CODED.findall(view.prompt) if len(one) > 7]
    plain = [text for one in words if (text := _plain(one))]
    return view.dressed(" ".join(plain)) if plain else None


def _plain(coded: str) -> str:
    for undo in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
        try:
            text = undo(coded).decode("ascii")
        except (ValueError, binascii.Error):
            continue
        if text.isprintable():
            return text
    return ""


def _turned(view: View) -> str:
    return view.dressed(codecs.encode(view.question, "rot13"))


def _shares(view: View) -> str | None:
    """Every option for certain."""
    return json.dumps(dict.fromkeys(view.options, 1.0)) if view.options else None


def _in_reverse(view: View) -> str | None:
    return view.dressed(view.options[-1 - view.turn % len(view.options)]) if view.options else None


TRICKS = (
    Probe(name="counting", what="says 1, 2, 3 and so on, a number a turn", say=lambda v: v.dressed(str(v.turn + 1))),
    Probe(name="spelling", what="says a, b, c and so on, a letter a turn", say=_spelling),
    Probe(name="end-to-end", what="the first and the last of what is offered, and nothing between", say=_ends),
    Probe(name="by-line", what="everything that is offered, a line each", say=_joined("\n")),
    Probe(name="by-space", what="everything that is offered, between spaces", say=_joined(" ")),
    Probe(name="trivial", what="the last number, times one", say=_trivial("1 * {0}")),
    Probe(name="itself", what="that the last number is itself", say=_trivial("{0} = {0}")),
    Probe(name="going-back", what="the prompt's own word for starting again, turn after turn", say=_going_back),
    Probe(name="by-or", what="everything that is offered, with or between", say=_joined(" or ")),
    Probe(name="in-reverse", what="what is offered, one a turn, the last first", say=_in_reverse),
    Probe(name="all-certain", what="that every option is certain", say=_shares),
    Probe(name="unevaluated", what="the question's expression, not worked out", say=_unevaluated),
    Probe(name="decoded", what="what stands in the prompt in a code", say=_decoded),
    Probe(name="turned", what="the question by ROT13", say=_turned),
    Probe(name="nested", what="brackets, 5,000 deep", say=lambda view: view.dressed("(" * DEEP + "1" + ")" * DEEP)),
    Probe(name="nested-list", what="lists, 5,000 deep", say=lambda view: view.dressed("[" * DEEP + "]" * DEEP)),
)
"""The battery of words, continued."""
