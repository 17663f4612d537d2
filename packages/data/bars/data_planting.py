"""Questions of reasoning-gym with copies, near copies, rewordings and held-out questions planted among them.

What is planted changes no value: typing errors and synonyms fall on words that most questions of a set have. The copies
that a set makes by itself are taken out first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from data_rewordings import REWORDINGS

DEVELOPED_ON = (
    *["chain_sum", "gcd", "base_conversion", "syllogism", "letter_counting", "family_relationships", "leg_counting"],
    *["spell_backward", "time_intervals", "simple_equations", "lcm", "products", "count_primes", "knights_knaves"],
    *["word_sorting", "calendar_arithmetic", "gsm_symbolic", "caesar_cipher", "number_sorting", "course_schedule"],
    *["prime_factorization", "decimal_arithmetic", "sentence_reordering", "polynomial_equations", "power_function"],
    *["count_bits", "bitwise_arithmetic", "fraction_simplification", "letter_jumble", "simple_geometry"],
    *["number_filtering", "isomorphic_strings", "decimal_chain_sum", "number_format", "ransom_note"],
    *["shortest_path", "string_manipulation", "word_ladder", "basic_arithmetic", "complex_arithmetic"],
    *["number_sequence", "dice", "palindrome_generation", "rotate_matrix", "string_splitting", "binary_alternation"],
    *["polynomial_multiplication", "string_insertion", "group_anagrams", "manipulate_matrix", "spiral_matrix", "jugs"],
    *["countdown", "simple_integration", "word_sequence_reversal", "advanced_geometry", "intermediate_integration"],
    *["cryptarithm", "needle_haystack", "mini_sudoku", "path_star", "list_functions", "modulo_grid"],
    *["rotten_oranges", "string_synthesis", "largest_island"],
)
"""Sets whose plantings were looked at while the method was made."""
UNSEEN = (
    *["acre", "maze", "zebra_puzzles", "knight_swap", "propositional_logic", "survo", "tsumego", "aiw"],
    *["emoji_mystery", "self_reference", "palindrome_partitioning", "n_queens", "mahjong_puzzle", "sokoban"],
    *["coin_flip", "sudoku", "bf", "quantum_lock", "figlet_font", "futoshiki"],
)
"""The first half of a draw among sets that were left. Rewordings were written first; then wrong claims were read."""
SYNONYMS = {
    "find": "determine",
    "calculate": "compute",
    "solve": "work out",
    "give": "provide",
    "provide": "give",
    "numbers": "values",
    "number": "value",
    "following": "below",
    "answer": "response",
    "final": "last",
    "task": "job",
    "problem": "exercise",
    "statements": "claims",
    "determine": "establish",
    "many": "numerous",
    "consider": "look at",
    "total": "overall",
    "state": "name",
    "only": "just",
    "text": "passage",
    "list": "listing",
    "using": "with",
    "words": "terms",
    "sort": "order",
    "count": "tally",
    "convert": "change",
}
PREFIXES = (
    "Please help me with this. ",
    "Question: ",
    "Here is one for you: ",
    "Hello! ",
    "3) ",
    "Think step by step.\n",
)
SUFFIXES = (" Thanks!", " Please be careful.", "\nExplain your reasoning.", " I need it today.", " Be brief.")
AROUND = (
    "Below is an exercise from a book of {a} pages. {q} When you are done, check it {b} times, and go on to the next.",
    "User {a} asked the assistant: {q}\nThe assistant thought for {b} seconds before it wrote anything at all.",
    "Example {a}. {q}\n\nNow write a similar exercise for a class of {b} pupils.",
)


@dataclass(slots=True)
class Planting:
    """Rows, and what was planted among them."""

    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """Per row: `own`, `exact`, `near`, `reworded`, or `contaminated` with how: `contaminated, near`."""
    held_out: list[str] = field(default_factory=list)
    held_out_answers: list[str] = field(default_factory=list)


def plant(names: Sequence[str], seed: int, *, rows: int = 150, share: float = 0.06) -> Planting:
    """`rows` questions of each set, half as many held out, and of each kind of copy `share` as many as questions."""
    rng, out, own = Random(f"planting/{seed}"), Planting(), list[tuple[str, str, str, frozenset[str]]]()
    held_out = list[tuple[str, str, str, frozenset[str]]]()
    for name in names:
        found = list(distinct(name, rows + rows // 2, seed))
        common = template_words([question for question, _ in found])
        both = [(name, question, answer, common) for question, answer in found]
        held_out += both[: len(both) // 3]
        own += both[len(both) // 3 :]
    entries = [("own", question, answer) for _, question, answer, _ in own]
    many = round(share * len(own))
    makers: dict[str, Callable[..., str | None]] = {"exact": copied, "near": nearly, "reworded": reworded}
    for kind, make in makers.items():
        entries += [(kind, *one) for one in planted(own, make, count=many, rng=rng)]
    for kind, make in (makers | {"within": within}).items():
        entries += [(f"contaminated, {kind}", *one) for one in planted(held_out, make, count=many // 2, rng=rng)]
    rng.shuffle(entries)
    out.kinds, out.texts, out.answers = (list(column) for column in zip(*entries, strict=True))  # type: ignore[assignment]
    out.held_out = [question for _, question, _, _ in held_out]
    out.held_out_answers = [answer for _, _, answer, _ in held_out]
    return out


def distinct(name: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Questions and answers of a set, without those that repeat another in the set's own wordings.

    Two questions repeat each other when their words in some order are the same, or their numbers and symbols in this
    order and all that the set itself records of them; and when their answers are the same.
    """
    from reasoning_gym import create_dataset

    seen: set[str] = set()
    found = 0
    data = create_dataset(name, size=count * 2, seed=seed * 1_000_003 + 17)
    for number in range(len(data)):
        try:
            entry = data[number]
        except RuntimeError:  # a maze without a path, for example: the set gives up after so many attempts
            continue
        question, answer = entry["question"], str(entry["answer"])
        words = sorted(re.findall(r"\w+|[^\w\s.,!?;:'\"]", question.lower()))
        values = re.findall(r"\d+|[^\w\s.,!?;:'\"]", question)
        recorded = {key: value for key, value in entry["metadata"].items() if not key.startswith("source_")}
        keys = {repr((words, answer)), repr((values, recorded, answer)) if len(recorded) > 1 else ""} - {""}
        if not keys & seen and found < count:
            seen |= keys
            found += 1
            yield question, answer


def template_words(questions: Sequence[str]) -> frozenset[str]:
    """Words that at least two in five questions have."""
    counts = Counter(word for question in questions for word in {*re.findall(r"[a-z]{2,}", question)})
    return frozenset(word for word, n in counts.items() if n >= 0.4 * len(questions))


def planted(
    sources: Sequence[tuple[str, str, str, frozenset[str]]], make: Callable[..., str | None], *, count: int, rng: Random
) -> Iterator[tuple[str, str]]:
    for name, question, answer, common in rng.sample(sources, len(sources)):
        made = make(name, question, common=common, rng=rng)
        if made is not None and count > 0:
            count -= 1
            yield made, answer


def copied(name: str, question: str, *, common: frozenset[str], rng: Random) -> str:
    """The question with other spaces, case and punctuation."""
    return rng.choice(
        [
            question,
            f"  {question}\n",
            question.replace(" ", "  "),
            re.sub(r"\.(?=\s|$)", " .", question),
            question.upper(),
        ]
        if name not in ("letter_counting", "word_sorting")
        else [question, f" {question} ", question.replace("\n", "\n\n")]
    )


def nearly(name: str, question: str, *, common: frozenset[str], rng: Random) -> str:
    """The question with one or two small changes, none of them to a value."""
    changes = rng.sample([affixed, mistyped, synonymous, shortened], rng.choice([1, 1, 2]))
    out = question
    for change in changes:
        out = change(out, common, rng)
    return out if out != question else affixed(question, common, rng)


def affixed(question: str, common: frozenset[str], rng: Random) -> str:
    before, after = rng.choice([(1, 0), (0, 1), (1, 1)])
    return before * rng.choice(PREFIXES) + question.rstrip() + after * rng.choice(SUFFIXES)


def mistyped(question: str, common: frozenset[str], rng: Random) -> str:
    def slip(word: str) -> str:
        place = rng.randrange(1, len(word) - 2)
        a, b = word[place], word[place + 1]
        return word[:place] + rng.choice([b + a, a, a + a + b, rng.choice("etaoin") + b]) + word[place + 2 :]

    return changed(question, [word for word in common if len(word) >= 5], slip, count=rng.choice([1, 2]), rng=rng)


def synonymous(question: str, common: frozenset[str], rng: Random) -> str:
    return changed(question, [word for word in common if word in SYNONYMS], SYNONYMS.__getitem__, count=2, rng=rng)


def shortened(question: str, common: frozenset[str], rng: Random) -> str:
    fillers = [
        word for word in common if word in ("the", "of", "a", "your", "these", "this", "now", "is", "as", "that")
    ]
    return re.sub("  +", " ", changed(question, fillers, lambda word: "", count=1, rng=rng))


def changed(question: str, words: Sequence[str], change: Callable[[str], str], *, count: int, rng: Random) -> str:
    there = sorted(word for word in words if re.search(rf"\b{word}\b", question))
    for word in rng.sample(there, min(count, len(there))):
        new = change(word)
        question = re.sub(rf"\b{word}\b", lambda _, new=new: new, question, count=1)
    return question


def within(name: str, question: str, *, common: frozenset[str], rng: Random) -> str:
    """A longer text, with numbers of its own, that has the question in it."""
    return rng.choice(AROUND).format(a=rng.randrange(2, 400), b=rng.randrange(2, 90), q=question.strip())


def reworded(name: str, question: str, *, common: frozenset[str], rng: Random) -> str | None:
    """The question in words of another template; None for sets that have none here."""
    if name not in REWORDINGS:
        return None
    pattern, forms = REWORDINGS[name]
    match = re.search(pattern, question.strip())
    return None if match is None else rng.choice(forms).format(**match.groupdict())
