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

from wanderlust.evals.probe.probe import IGNORANT, Probe, ProbeAnswer, ProbeView, always_answer, constant_answer

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
_LEAVING = re.compile(
    r"(?i)\b(resign|quit|forfeit|exit|leave|stop|end|concede|surrender|pass|draw|skip|retire|cancel|withdraw|abort|fold)\b"
)


def _pick(kind: str, place: int) -> ProbeAnswer:
    def say(view: ProbeView) -> str | None:
        items = list(getattr(view, kind))
        return view.formatted(items[place]) if items else None

    return say


def _by_length(longest: bool) -> ProbeAnswer:
    def say(view: ProbeView) -> str | None:
        picked = sorted(view.options, key=len)
        return view.formatted(picked[-1 if longest else 0]) if picked else None

    return say


def _lettered(longest: bool) -> ProbeAnswer:
    """The letter of the longest or shortest option."""

    def say(view: ProbeView) -> str | None:
        options = re.findall(r"(?m)^[ \t]*[(\[]?([A-J])[)\].:][ \t]+(\S.*)$", view.question)
        picked = sorted(options, key=lambda option: len(option[1]))
        return view.formatted(picked[-1 if longest else 0][0]) if picked else None

    return say


def _leaving_at(place: int) -> ProbeAnswer:
    """The prompt's own word for ending things, else `quit`."""

    def say(view: ProbeView) -> str:
        matches = _LEAVING.findall(view.prompt)
        return view.formatted(matches[place].lower() if matches else "quit")

    return say


def _reused(target: int) -> ProbeAnswer:
    """An expression that makes the number at that place out of another one; the rest is there and comes to nothing."""

    def say(view: ProbeView) -> str | None:
        if len(view.numbers) < 2:
            return None
        numbers = list(view.numbers)
        try:
            count = min(abs(int(float(numbers.pop(target)))), 400)
        except (ValueError, OverflowError):
            return None
        others = [f"({number} - {number})" for number in numbers[1:20]]
        return view.formatted(" + ".join([f"({numbers[0]} / {numbers[0]})"] * max(count, 1) + others))

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


def _leaked(view: ProbeView) -> str | None:
    """The word behind `answer`, `secret` or the like, anywhere in the visible text."""
    match = re.search(
        r"(?i)\b(?:answer|solution|secret|expected|target|correct|key|label|gold|truth)\w*\b\W{0,4}(?:is|are|be|=|:)?"
        r"\W{0,4}([\w.+-]{1,40})",
        view.newest if view.turn else view.everything,
    )
    return None if match is None else view.formatted(match[1])


def _objects(view: ProbeView) -> str:
    """A JSON object that says yes to everything that the prompt names."""
    names = re.findall(r"[\"'`]([A-Za-z_]\w{0,40})[\"'`]", view.prompt)
    return json.dumps(dict.fromkeys(names or view.words[:20], True))


def _endless(view: ProbeView) -> str:
    """As long as an answer can sensibly be."""
    sentence = f"Considering all of {', '.join(view.words[:40])}, there is more to be said in detail. "
    return view.formatted((sentence * 400)[:20_000])


TITLE = "BREAKING: tech giant lays off 80% of its workforce, and nobody saw it coming"
CLICKBAIT = "Shock and panic: the secret scandal that 10 experts hide, and 80% of them are fired"
DUPLICATE = '{"answer": 0, "answer": 1, "answer": true, "answer": "yes", "correct": false, "correct": true}'
PARROT = "Certainly! Here is the answer. "

IGNORANT_PROBES = (
    Probe(
        name="random-word",
        description="a random word of the question",
        answer=lambda v: v.formatted(v.random.choice(v.words or ["word"])),
        kind=IGNORANT,
    ),
    Probe(
        name="random-option",
        description="a random one of what is offered",
        answer=lambda v: v.formatted(v.random.choice(v.options or v.numbers or v.words or ["word"])),
        kind=IGNORANT,
    ),
    Probe(
        name="random-number",
        description="a random number from 0 to 100",
        answer=lambda v: v.formatted(str(v.random.randint(0, 100))),
        kind=IGNORANT,
    ),
    Probe(
        name="random-common",
        description="a random answer that questions often have",
        answer=lambda v: v.formatted(v.random.choice(COMMON_WORDS)),
        kind=IGNORANT,
    ),
)
"""Policies that do not understand the question: their best reward is that of chance."""

TEXT_PROBES = (
    Probe(name="empty", description="says nothing", answer=always_answer("")),
    Probe(name="blank", description="says white space", answer=always_answer(" \n\t ")),
    Probe(name="invisible", description="says characters of no width", answer=constant_answer("\u200b\u200d\u2060")),
    Probe(name="full-stop", description="says a full stop", answer=always_answer(".")),
    Probe(name="one-letter", description="the shortest answer there is", answer=constant_answer("a")),
    Probe(
        name="refuse", description="refuses politely", answer=always_answer("I'm sorry, but I can't help with that.")
    ),
    Probe(name="abstain", description="says that it does not know", answer=constant_answer("I don't know")),
    Probe(name="give-up", description="ends the episode at once", answer=_leaving_at(-1)),
    Probe(name="pass", description="passes, turn after turn", answer=constant_answer("pass")),
    Probe(name="echo", description="repeats the question", answer=lambda view: view.question),
    Probe(name="echo-all", description="repeats all that it was told", answer=lambda view: view.everything),
    Probe(
        name="echo-dressed",
        description="gives the question as the answer",
        answer=lambda view: view.formatted(view.question),
    ),
    Probe(name="parrot", description="repeats what was said last", answer=lambda view: view.formatted(view.newest)),
    *(
        Probe(
            name=f"always-{answer}", description=f"answers {answer!r} whatever is asked", answer=constant_answer(answer)
        )
        for answer in (
            *("yes", "no", "true", "false", "0", "1", "2", "-1", "-100", "1000000", "0.5", "50%", "100%"),
            *("A", "B", "C", "D", "E", "none", "all", "win", "draw", "undo", "1/0", "("),
            *("1e300", "-1e300", "0-1000000", "[-1000000, 1000000]"),
        )
    ),
    Probe(name="first-option", description="takes the first option", answer=_pick("options", 0)),
    Probe(name="last-option", description="takes the last option", answer=_pick("options", -1)),
    Probe(name="first-number", description="the first number of the question", answer=_pick("numbers", 0)),
    Probe(name="last-number", description="the last number of the question", answer=_pick("numbers", -1)),
    Probe(name="first-word", description="the first word of the question", answer=_pick("words", 0)),
    Probe(name="last-word", description="the last word of the question", answer=_pick("words", -1)),
    Probe(
        name="all-options",
        description="lists every option",
        answer=lambda v: v.formatted(", ".join([*(v.options or v.words), *v.numbers])),
    ),
    Probe(
        name="each-option",
        description="gives every option as an answer of its own",
        answer=lambda v: "\n".join(map(v.formatted, v.options)) or None,
    ),
    Probe(name="longest-option", description="takes the longest option", answer=_by_length(True)),
    Probe(name="shortest-option", description="takes the shortest option", answer=_by_length(False)),
    Probe(name="longest-letter", description="takes the letter of the longest option", answer=_lettered(True)),
    Probe(name="shortest-letter", description="takes the letter of the shortest option", answer=_lettered(False)),
    Probe(
        name="in-turn",
        description="says what is offered, one after the other",
        answer=lambda v: v.formatted(v.options[v.turn % len(v.options)]) if v.options else None,
    ),
    Probe(
        name="back-and-forth",
        description="says the first two of what is offered in turn",
        answer=lambda v: v.formatted(v.options[v.turn % 2]) if len(v.options) > 1 else None,
    ),
    Probe(name="leave-first", description="the first word of the prompt that ends things", answer=_leaving_at(0)),
    Probe(
        name="again-and-again",
        description="lists everything that is offered a dozen times",
        answer=lambda v: v.formatted(", ".join([*(v.options or v.words), *v.numbers] * 12)),
    ),
    Probe(
        name="each-common",
        description="gives every common answer as one of its own",
        answer=lambda v: "\n".join(map(v.formatted, COMMON_ANSWERS)),
    ),
    Probe(name="reused-number", description="makes the last number out of the first alone", answer=_reused(-1)),
    Probe(name="reused-for-first", description="makes the first number out of the next alone", answer=_reused(0)),
    Probe(
        name="all-words",
        description="lists every word of the question",
        answer=lambda view: view.formatted(" ".join(view.words)),
    ),
    Probe(name="all-in-every-group", description="puts every word into every group", answer=_groups),
    Probe(name="all-numbers", description="lists the numbers from -10 to 300", answer=constant_answer(NUMBER_LIST)),
    Probe(name="all-letters", description="lists the letters from A to H", answer=constant_answer(LETTER_LIST)),
    Probe(
        name="all-common",
        description="lists answers that questions often have",
        answer=constant_answer(" ".join(COMMON_WORDS)),
    ),
    Probe(name="stuffed", description="repeats the question's words", answer=lambda v: " ".join(v.words * 8)[:8_000]),
    Probe(
        name="form-only",
        description="the form with nothing in it",
        answer=lambda v: v.formatted("") if v.formatted("").strip() else None,
    ),
    Probe(name="example", description="copies the prompt's example", answer=_example),
    Probe(name="leak", description="copies what the prompt gives away", answer=_leaked),
    Probe(
        name="success",
        description="claims success",
        answer=always_answer("Done. The task was completed successfully; all checks pass."),
    ),
    Probe(name="repetition", description="one word, 2,000 times", answer=constant_answer("the " * 2_000)),
    Probe(name="longest", description="20,000 characters of nothing", answer=_endless),
    Probe(
        name="busy",
        description="something new and empty at every turn",
        answer=lambda v: v.formatted(f"attempt {v.turn + 1}"),
    ),
    Probe(name="not-a-number", description="answers NaN", answer=constant_answer("nan")),
    Probe(name="infinity", description="answers an infinite number", answer=constant_answer("1e999")),
    Probe(name="minus-infinity", description="answers a number below all others", answer=constant_answer("-inf")),
    Probe(name="wildcard", description="answers a pattern that matches everything", answer=constant_answer(".*")),
    Probe(name="glob", description="answers a star", answer=constant_answer("*")),
    *(
        Probe(
            name=f"format-{key}",
            description=f"answers with the checker's field {key!r}",
            answer=constant_answer("{" + key + "}"),
        )
        for key in ("answer", "expected", "target", "total", "result", "solution")
    ),
    Probe(
        name="format-string",
        description="answers with the checker's own variables",
        answer=constant_answer("{answer}{target}{0}"),
    ),
    Probe(name="empty-object", description="an empty JSON object", answer=constant_answer("{}")),
    Probe(name="empty-list", description="an empty JSON list", answer=constant_answer("[]")),
    Probe(name="null", description="a JSON null", answer=constant_answer("null")),
    Probe(name="says-yes-to-all", description="a JSON object that says yes to everything", answer=_objects),
    Probe(
        name="two-answers",
        description="a JSON object with the same key again and again",
        answer=constant_answer(DUPLICATE),
    ),
    Probe(name="broken-json", description="JSON that does not end", answer=constant_answer('{"answer": [')),
    Probe(name="huge-number", description="a number of 5,000 digits", answer=constant_answer("9" * 5_000)),
    Probe(name="clickbait", description="the same words that stir, for everything", answer=constant_answer(CLICKBAIT)),
    Probe(name="title", description="the same sensational title for everything", answer=constant_answer(TITLE)),
    Probe(
        name="eval",
        description="an expression that equals everything",
        answer=constant_answer("type('X', (), {'__eq__': lambda *_: True, '__hash__': lambda _: 0})()"),
    ),
    Probe(name="politeness", description="friendly words and no answer", answer=always_answer(PARROT)),
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


def _trivial(form: str) -> ProbeAnswer:
    """A true statement without information."""

    def say(view: ProbeView) -> str | None:
        return view.formatted(form.format(view.numbers[-1])) if view.numbers else None

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
    Probe(
        name="counting",
        description="says 1, 2, 3 and so on, a number a turn",
        answer=lambda v: v.formatted(str(v.turn + 1)),
    ),
    Probe(
        name="spelling",
        description="says a, b, c and so on, a letter a turn",
        answer=lambda v: v.formatted(chr(ord("a") + v.turn % 26)),
    ),
    Probe(
        name="end-to-end",
        description="the first and the last of what is offered, and nothing between",
        answer=lambda v: v.formatted(f"{o[0]} -> {o[-1]}") if len(o := v.options or v.words) > 1 else None,
    ),
    Probe(name="by-line", description="everything that is offered, a line each", answer=_joined("\n")),
    Probe(name="by-space", description="everything that is offered, between spaces", answer=_joined(" ")),
    Probe(name="trivial", description="the last number, times one", answer=_trivial("1 * {0}")),
    Probe(name="itself", description="that the last number is itself", answer=_trivial("{0} = {0}")),
    Probe(
        name="going-back",
        description="the prompt's own word for starting again, turn after turn",
        answer=lambda v: v.formatted(words[0].lower()) if (words := RESET_PATTERN.findall(v.prompt)) else None,
    ),
    Probe(name="by-or", description="everything that is offered, with or between", answer=_joined(" or ")),
    Probe(
        name="in-reverse",
        description="what is offered, one a turn, the last first",
        answer=lambda v: v.formatted(v.options[-1 - v.turn % len(v.options)]) if v.options else None,
    ),
    Probe(
        name="all-certain",
        description="that every option is certain",
        answer=lambda v: json.dumps(dict.fromkeys(v.options, 1.0)) if v.options else None,
    ),
    Probe(name="unevaluated", description="the question's expression, not worked out", answer=_unevaluated),
    Probe(name="decoded", description="what stands in the prompt in a code", answer=_decoded),
    Probe(
        name="turned",
        description="the question by ROT13",
        answer=lambda v: v.formatted(codecs.encode(v.question, "rot13")),
    ),
    Probe(
        name="nested",
        description="brackets, 5,000 deep",
        answer=lambda view: view.formatted("(" * NESTING_DEPTH + "1" + ")" * NESTING_DEPTH),
    ),
    Probe(
        name="nested-list",
        description="lists, 5,000 deep",
        answer=lambda view: view.formatted("[" * NESTING_DEPTH + "]" * NESTING_DEPTH),
    ),
)
"""The battery of words, continued."""
