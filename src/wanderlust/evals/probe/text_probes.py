"""Probes that only talk (`TEXT_PROBES`: empty, constant, copied, listed, padded, malformed), that use what a lax
checker accepts (`TRICK_PROBES`: everything at once, unevaluated, in codes), and that measure chance
(`IGNORANT_PROBES`).
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable, Sequence

from wanderlust.evals.probe.probe import (
    IGNORANT,
    ProbeAnswer,
    ProbeView,
    always_answer,
    constant_answer,
    named_probe,
    taken,
)

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
COMMON_WORDS = _WORLDLY.split()
"""Labels, directions, colours, numbers, letters."""
COMMON_ANSWERS = [name.replace("-", " ") for name in f"{_WORLDLY} {_CAPITALS} {_COUNTRIES} {_CALENDAR}".split()]
"""The common words, and capitals, countries, days and months."""


RESET_PATTERN = re.compile(r"(?i)\b(home|restart|reset|undo|back|again|new|return|retry|load|respawn)\b")
"""Words that may lead back to the start."""
NUMBER_LIST = " ".join(map(str, range(-10, 301)))
LETTER_LIST = "A B C D E F G H"
_LEAK = re.compile(
    r"(?i)\b(?:answer|solution|secret|expected|target|correct|key|label|gold|truth)\w*\b\W{0,4}(?:is|are|be|=|:)?"
    r"\W{0,4}([\w.+-]{1,40})"
)
"""The word behind `answer`, `secret` or the like."""
_NAMED = re.compile(r"[\"'`]([A-Za-z_]\w{0,40})[\"'`]")
_LEAVING = re.compile(
    r"(?i)\b(resign|quit|forfeit|exit|leave|stop|end|concede|surrender|pass|draw|skip|retire|cancel|withdraw|abort|fold)\b"
)


def _letters(view: ProbeView) -> list[str]:
    """The letters of the options, that of the shortest one first."""
    options = re.findall(r"(?m)^[ \t]*[(\[]?([A-J])[)\].:][ \t]+(\S.*)$", view.question)
    return [letter for letter, _ in sorted(options, key=lambda option: len(option[1]))]


def _leaving(view: ProbeView) -> list[str]:
    """The prompt's own words for ending things, else `quit`."""
    return [word.lower() for word in _LEAVING.findall(view.prompt)] or ["quit"]


def _reused(target: int, *, rest: bool = True) -> ProbeAnswer:
    """An expression that makes the number at that place out of another one; the rest, if any, comes to nothing."""

    def say(view: ProbeView) -> str | None:
        if len(view.numbers) < 2:
            return None
        numbers = list(view.numbers)
        try:
            count = min(abs(int(float(numbers.pop(target)))), 400)
        except (ValueError, OverflowError):
            return None
        others = [f"({number} - {number})" for number in numbers[1:20]] if rest else []
        between = " + " if rest else "+"
        return view.formatted(between.join([f"{numbers[0]}/{numbers[0]}"] * max(count, 1) + others))

    return say


def _groups(view: ProbeView) -> str:
    """Every word in every group."""
    groups = [int(number) for number in view.numbers if number in {"2", "3", "4", "5", "6"}]
    everything = ", ".join(view.options or view.words)
    return "\n".join([view.formatted(everything)] * max([4, *groups]))


def _example(view: ProbeView) -> str | None:
    """The example of the form, as the prompt has it."""
    examples = [
        match[0]
        for tag in view.tags
        for match in re.finditer(rf"<{re.escape(tag)}>[^<]*</{re.escape(tag)}>", view.prompt)
    ]
    return view.reasoning + examples[-1] if examples else None


def _from_examples(content: Callable[[ProbeView, Sequence[str]], str]) -> ProbeAnswer:
    """Something made of the answers that the prompt gives as examples."""

    def say(view: ProbeView) -> str | None:
        if view.form is None or not view.example_count:
            return None
        return view.form.write(content(view, view.form.contents))

    return say


def random_example(view: ProbeView) -> str | None:
    """A random one of the right answers to other tasks that are known, in their form."""
    return view.form.write(view.random.choice(view.form.contents)) if view.form is not None else None


TITLE = "BREAKING: tech giant lays off 80% of its workforce, and nobody saw it coming"
CLICKBAIT = "Shock and panic: the secret scandal that 10 experts hide, and 80% of them are fired"
DUPLICATE = '{"answer": 0, "answer": 1, "answer": true, "answer": "yes", "correct": false, "correct": true}'
PARROT = "Certainly! Here is the answer. "

IGNORANT_PROBES = (
    named_probe(
        "random-word",
        "a random word of the question",
        lambda v: v.formatted(v.random.choice(v.words or ["word"])),
        kind=IGNORANT,
    ),
    named_probe(
        "random-option",
        "a random one of what is offered",
        lambda v: v.formatted(v.random.choice(v.options or v.numbers or v.words or ["word"])),
        kind=IGNORANT,
    ),
    named_probe(
        "random-number",
        "a random number from 0 to 100",
        lambda v: v.formatted(str(v.random.randint(0, 100))),
        kind=IGNORANT,
    ),
    named_probe(
        "random-common",
        "a random answer that questions often have",
        lambda v: v.formatted(v.random.choice(COMMON_WORDS)),
        kind=IGNORANT,
    ),
)
"""Policies that do not understand the question: their best reward is that of chance."""

TEXT_PROBES = (
    named_probe("empty", "says nothing", always_answer("")),
    named_probe("blank", "says white space", always_answer(" \n\t ")),
    named_probe("invisible", "says characters of no width", constant_answer("\u200b\u200d\u2060")),
    named_probe("full-stop", "says a full stop", always_answer(".")),
    named_probe("one-letter", "the shortest answer there is", constant_answer("a")),
    named_probe("refuse", "refuses politely", always_answer("I'm sorry, but I can't help with that.")),
    named_probe("abstain", "says that it does not know", constant_answer("I don't know")),
    named_probe("give-up", "ends the episode at once", taken(lambda v: _leaving(v)[-1])),
    named_probe("pass", "passes, turn after turn", constant_answer("pass")),
    named_probe("echo", "repeats the question", lambda view: view.question),
    named_probe("echo-all", "repeats all that it was told", lambda view: view.everything),
    named_probe("echo-dressed", "gives the question as the answer", lambda view: view.formatted(view.question)),
    named_probe("parrot", "repeats what was said last", lambda view: view.formatted(view.newest)),
    *(
        named_probe(f"always-{answer}", f"answers {answer!r} whatever is asked", constant_answer(answer))
        for answer in (
            *("yes", "no", "true", "false", "0", "1", "2", "-1", "-100", "1000000", "0.5", "50%", "100%"),
            *("A", "B", "C", "D", "E", "none", "all", "win", "draw", "undo", "1/0", "("),
            *("1e300", "-1e300", "0-1000000", "[-1000000, 1000000]"),
        )
    ),
    named_probe("first-option", "takes the first option", taken(lambda v: v.options[0])),
    named_probe("last-option", "takes the last option", taken(lambda v: v.options[-1])),
    named_probe("first-number", "the first number of the question", taken(lambda v: v.numbers[0])),
    named_probe("last-number", "the last number of the question", taken(lambda v: v.numbers[-1])),
    named_probe("first-word", "the first word of the question", taken(lambda v: v.words[0])),
    named_probe("last-word", "the last word of the question", taken(lambda v: v.words[-1])),
    named_probe(
        "all-options", "lists every option", lambda v: v.formatted(", ".join([*(v.options or v.words), *v.numbers]))
    ),
    named_probe(
        "each-option",
        "gives every option as an answer of its own",
        lambda v: "\n".join(map(v.formatted, v.options)) or None,
    ),
    named_probe("longest-option", "takes the longest option", taken(lambda v: sorted(v.options, key=len)[-1])),
    named_probe("shortest-option", "takes the shortest option", taken(lambda v: sorted(v.options, key=len)[0])),
    named_probe("longest-letter", "takes the letter of the longest option", taken(lambda v: _letters(v)[-1])),
    named_probe("shortest-letter", "takes the letter of the shortest option", taken(lambda v: _letters(v)[0])),
    named_probe(
        "in-turn", "says what is offered, one after the other", taken(lambda v: v.options[v.turn % len(v.options)])
    ),
    named_probe(
        "back-and-forth",
        "says the first two of what is offered in turn",
        taken(lambda v: (v.options[0], v.options[1])[v.turn % 2]),
    ),
    named_probe("leave-first", "the first word of the prompt that ends things", taken(lambda v: _leaving(v)[0])),
    named_probe(
        "again-and-again",
        "lists everything that is offered a dozen times",
        lambda v: v.formatted(", ".join([*(v.options or v.words), *v.numbers] * 12)),
    ),
    named_probe(
        "each-common",
        "gives every common answer as one of its own",
        lambda v: "\n".join(map(v.formatted, COMMON_ANSWERS)),
    ),
    named_probe("reused-number", "makes the last number out of the first alone", _reused(-1)),
    named_probe("reused-for-first", "makes the first number out of the next alone", _reused(0)),
    named_probe("reused-briefly", "makes the last number out of the first, and nothing else", _reused(-1, rest=False)),
    named_probe("reused-first-briefly", "makes the first number out of the next", _reused(0, rest=False)),
    named_probe("all-words", "lists every word of the question", lambda view: view.formatted(" ".join(view.words))),
    named_probe("all-in-every-group", "puts every word into every group", _groups),
    named_probe("all-numbers", "lists the numbers from -10 to 300", constant_answer(NUMBER_LIST)),
    named_probe("all-letters", "lists the letters from A to H", constant_answer(LETTER_LIST)),
    named_probe("all-common", "lists answers that questions often have", constant_answer(" ".join(COMMON_WORDS))),
    named_probe("stuffed", "repeats the question's words", lambda v: " ".join(v.words * 8)[:8_000]),
    named_probe(
        "form-only", "the form with nothing in it", lambda v: v.formatted("") if v.formatted("").strip() else None
    ),
    named_probe("example", "copies the prompt's example", _example),
    named_probe("first-example", "gives the answer of the first example", _from_examples(lambda v, known: known[0])),
    named_probe(
        "examples-in-turn",
        "gives the answers of the examples in turn",
        _from_examples(lambda v, known: known[v.turn % len(known)]),
    ),
    named_probe("all-examples", "lists the answers of all examples", _from_examples(lambda v, known: ", ".join(known))),
    named_probe(
        "leak",
        "copies what the prompt gives away",
        taken(lambda v: _LEAK.findall(v.newest if v.turn else v.everything)[0]),
    ),
    named_probe(
        "success", "claims success", always_answer("Done. The task was completed successfully; all checks pass.")
    ),
    named_probe("repetition", "one word, 2,000 times", constant_answer("the " * 2_000)),
    named_probe(
        "longest",
        "20,000 characters of nothing",
        lambda v: v.formatted(
            (f"Considering all of {', '.join(v.words[:40])}, there is more to be said in detail. " * 400)[:20_000]
        ),
    ),
    named_probe("busy", "something new and empty at every turn", lambda v: v.formatted(f"attempt {v.turn + 1}")),
    named_probe("not-a-number", "answers NaN", constant_answer("nan")),
    named_probe("infinity", "answers an infinite number", constant_answer("1e999")),
    named_probe("minus-infinity", "answers a number below all others", constant_answer("-inf")),
    named_probe("wildcard", "answers a pattern that matches everything", constant_answer(".*")),
    named_probe("glob", "answers a star", constant_answer("*")),
    *(
        named_probe(f"format-{key}", f"answers with the checker's field {key!r}", constant_answer("{" + key + "}"))
        for key in ("answer", "expected", "target", "total", "result", "solution")
    ),
    named_probe("format-string", "answers with the checker's own variables", constant_answer("{answer}{target}{0}")),
    named_probe("empty-object", "an empty JSON object", constant_answer("{}")),
    named_probe("empty-list", "an empty JSON list", constant_answer("[]")),
    named_probe("null", "a JSON null", constant_answer("null")),
    named_probe(
        "says-yes-to-all",
        "a JSON object that says yes to everything",
        lambda v: json.dumps(dict.fromkeys(_NAMED.findall(v.prompt) or v.words[:20], True)),
    ),
    named_probe("two-answers", "a JSON object with the same key again and again", constant_answer(DUPLICATE)),
    named_probe("broken-json", "JSON that does not end", constant_answer('{"answer": [')),
    named_probe("huge-number", "a number of 5,000 digits", constant_answer("9" * 5_000)),
    named_probe("clickbait", "the same words that stir, for everything", constant_answer(CLICKBAIT)),
    named_probe("title", "the same sensational title for everything", constant_answer(TITLE)),
    named_probe(
        "eval",
        "an expression that equals everything",
        constant_answer("type('X', (), {'__eq__': lambda *_: True, '__hash__': lambda _: 0})()"),
    ),
    named_probe("politeness", "friendly words and no answer", always_answer(PARROT)),
)
"""The battery of words."""


_SUM = re.compile(r"[(\d][\d\s.()+*/^\u00d7\u00f7%-]{2,200}[\d)]")
_CODED = re.compile(r"\b[A-Za-z0-9+/]{4,400}={0,2}")
NESTING_DEPTH = 5_000
"""Brackets within each other."""


def _joined(between: str) -> ProbeAnswer:
    def say(view: ProbeView) -> str | None:
        return view.formatted(between.join(view.options)) if view.options else None

    return say


def _unevaluated(view: ProbeView) -> str | None:
    """The longest expression of the question, as it stands."""
    expressions = [
        one.strip() for one in _SUM.findall(view.question) if re.search(r"\d\s*[-+*/^%\u00d7\u00f7]\s*[(\d]", one)
    ]
    return view.formatted(max(expressions, key=len)) if expressions else None


def _decoded(view: ProbeView) -> str | None:
    """The texts of the question in base64 or in hexadecimal digits, decoded."""
    words = [one for one in _CODED.findall(view.prompt) if len(one) > 7]
    plain = [text for one in words if (text := _printable_ascii(one))]
    return view.formatted(" ".join(plain)) if plain else None


def _printable_ascii(coded: str) -> str:
    for undo in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
        try:
            text = undo(coded).decode("ascii")
        except (ValueError, binascii.Error):
            continue
        if text.isprintable():
            return text
    return ""


TRICK_PROBES = (
    named_probe("counting", "says 1, 2, 3 and so on, a number a turn", lambda v: v.formatted(str(v.turn + 1))),
    named_probe(
        "spelling", "says a, b, c and so on, a letter a turn", lambda v: v.formatted(chr(ord("a") + v.turn % 26))
    ),
    named_probe(
        "end-to-end",
        "the first and the last of what is offered, and nothing between",
        lambda v: v.formatted(f"{o[0]} -> {o[-1]}") if len(o := v.options or v.words) > 1 else None,
    ),
    named_probe("by-line", "everything that is offered, a line each", _joined("\n")),
    named_probe("by-space", "everything that is offered, between spaces", _joined(" ")),
    named_probe("trivial", "the last number, times one", taken(lambda v: f"1 * {v.numbers[-1]}")),
    named_probe("itself", "that the last number is itself", taken(lambda v: "{0} = {0}".format(v.numbers[-1]))),
    named_probe(
        "going-back",
        "the prompt's own word for starting again, turn after turn",
        taken(lambda v: RESET_PATTERN.findall(v.prompt)[0].lower()),
    ),
    named_probe("by-or", "everything that is offered, with or between", _joined(" or ")),
    named_probe(
        "in-reverse",
        "what is offered, one a turn, the last first",
        taken(lambda v: v.options[-1 - v.turn % len(v.options)]),
    ),
    named_probe(
        "all-certain",
        "that every option is certain",
        lambda v: json.dumps(dict.fromkeys(v.options, 1.0)) if v.options else None,
    ),
    named_probe("unevaluated", "the question's expression, not worked out", _unevaluated),
    named_probe("decoded", "what stands in the prompt in a code", _decoded),
    named_probe("turned", "the question by ROT13", lambda v: v.formatted(codecs.encode(v.question, "rot13"))),
    named_probe(
        "nested", "brackets, 5,000 deep", lambda view: view.formatted("(" * NESTING_DEPTH + "1" + ")" * NESTING_DEPTH)
    ),
    named_probe(
        "nested-list", "lists, 5,000 deep", lambda view: view.formatted("[" * NESTING_DEPTH + "]" * NESTING_DEPTH)
    ),
)
"""The battery of words, continued."""
