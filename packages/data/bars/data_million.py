"""Duplicates among a million questions: `python data_million.py ROWS` prints the cost as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from random import Random

from data_planting import copied, nearly, template_words
from wanderlust_data import find_duplicates

SETS = (
    *["chain_sum", "products", "gcd", "simple_equations", "spell_backward", "letter_counting", "time_intervals"],
    *["decimal_arithmetic", "leg_counting", "base_conversion"],
)
PLANTED_SHARE = 0.1


def questions(count: int) -> tuple[list[str], list[str], list[bool]]:
    """Questions and answers, a tenth of them copies or near copies, and which are."""
    from reasoning_gym import create_dataset

    rng, texts, answers, planted = Random("million"), list[str](), list[str](), list[bool]()
    for name in SETS:
        size = count // len(SETS)
        data = create_dataset(name, size=size, seed=7)
        own = [(entry["question"], str(entry["answer"])) for entry in map(data.__getitem__, range(round(size * 0.9)))]
        common = template_words([question for question, _ in own[:500]])
        copies = [
            (rng.choice((copied, nearly))(name, question, common=common, rng=rng), answer)
            for question, answer in rng.sample(own, size - len(own))
        ]
        for rows, is_copy in ((own, False), (copies, True)):
            texts += [question for question, _ in rows]
            answers += [answer for _, answer in rows]
            planted += [is_copy] * len(rows)
    return texts, answers, planted


def main(count: int) -> None:
    """Print rows, removed, found (the share of planted copies), seconds, gigabytes."""
    texts, answers, planted = questions(count)
    began = time.process_time()
    matches = find_duplicates(texts, answers)
    seconds = time.process_time() - began
    involved = {match.row for match in matches} | {match.of for match in matches}
    places = [row for row, is_copy in enumerate(planted) if is_copy]
    body = {
        "rows": len(texts),
        "removed": len(matches),
        "found": sum(row in involved for row in places) / len(places),
        "seconds": seconds,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    sys.stdout.write(json.dumps(body) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
