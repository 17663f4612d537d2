"""Contracts of small programs, each with a right program, from contracts.txt; and spoilt ones made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wanderlust_proofs.programs import Contract, near_results, read_contract
from wanderlust_proofs.small_python import ProgramError, parse_program

_SWAPS = {"<=": "<", ">=": ">", "<": "<=", ">": ">=", "==": "!=", "!=": "==", " and ": " or ", " or ": " and "}


def contracts() -> dict[str, tuple[str, str]]:
    """Contract and program by name; the last four allow several results."""
    found = {}
    for block in re.split(r"^# ", Path(__file__).with_suffix(".txt").read_text(), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        contract, _, program = rest.partition("\n=\n")
        found[name] = (contract + "\n", program.strip() + "\n")
    return found


def changed(text: str) -> Iterator[str]:
    """Contracts with one change in what is required or ensured."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        word, _, rest = line.partition(" ")
        made = list[str]()
        if word == "ensures":
            made += ["ensures result == result", f"ensures {rest} or result == 0", f"ensures {rest} or result != 99"]
            made += [f"ensures not ({rest})"]
            if sum(one.startswith("ensures") for one in lines) > 1:
                made.append("")
        elif word == "requires":
            made += [f"requires not ({rest}) and {rest}", ""]
        if word in ("ensures", "requires"):
            for found in re.finditer(r"<=|>=|==|!=|<|>| and | or ", line):
                made.append(line[: found.start()] + _SWAPS[found[0]] + line[found.end() :])
            for found in re.finditer(r"\b\d+\b", line):
                made += [line[: found.start()] + str(int(found[0]) + step) + line[found.end() :] for step in (1, 2)]
        yield from ("\n".join([*lines[:at], one, *lines[at + 1 :]]) for one in made)


def is_as_right(text: str, original: Contract, program: str) -> bool:
    """Whether a contract has no further cases than the original, some, and allows the same results in each.

    Compared are results near the right one, and some far from it.
    """
    try:
        contract = read_contract(text)
    except ProgramError:
        return False
    reference = parse_program(program)
    known = {str(case) for case in original.cases}
    if not contract.cases or any(str(case) not in known for case in contract.cases):
        return False
    for case in contract.cases:
        right = reference.run(case)
        for result in [right, *near_results(right, case), 99, -50, [7, 7], [9]]:
            if contract.allows(case, result) != original.allows(case, result):
                return False
    return True
