"""Words, numbers and small readers that both halves build on: nothing in here is a reward."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random

from wanderlust.types import Message, ToolCall, assistant


def _listed(text: str) -> list[str]:
    return text.split()


def paired(text: str) -> dict[str, str]:
    """`one:other two:another` by the first of each pair."""
    return dict(pair.split(":") for pair in text.split())


CAPITALS = paired(
    "France:Paris Italy:Rome Spain:Madrid Portugal:Lisbon Austria:Vienna Greece:Athens Norway:Oslo Japan:Tokyo "
    "Finland:Helsinki Poland:Warsaw Hungary:Budapest Ireland:Dublin Belgium:Brussels Denmark:Copenhagen Iran:Tehran "
    "Germany:Berlin Egypt:Cairo Kenya:Nairobi Sweden:Stockholm Peru:Lima Cuba:Havana Chile:Santiago Canada:Ottawa "
    "Turkey:Ankara"
)
FRUITS = _listed("apple pear plum cherry mango lemon banana peach quince papaya apricot fig grape melon")
THINGS = _listed(
    "ladder bucket lamp hammer carpet kettle pillow basket mirror ribbon candle bottle saddle anchor needle blanket "
    "drawer funnel hinge locket marble napkin pencil trowel whistle"
)
PEOPLE = _listed("Ada Boris Chen Dora Emil Farah Gus Hana Ivan Jun Kofi Lena Mateo Nora Omar Priya")
FILLER = _listed("it was said that in the old house by the river there stood a long table on which many things lay")

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def last_answer(text: str) -> str | None:
    """What stands in the only <answer> field; None when there is none or more than one."""
    found = _TAG.findall(text)
    return found[0].strip() if len(found) == 1 else None


def fields(text: str) -> list[str]:
    """What stands in every <answer> field."""
    return [one.strip() for one in _TAG.findall(text)]


def asked_last(messages: Sequence[Message]) -> str:
    """The text that is to be answered."""
    return messages[-1].content


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"[a-z]+", text.lower())


def whole_number(text: str) -> int | None:
    """The number that the text is and nothing else, of at most twelve digits."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text.strip()) else None


def overlap(said: Sequence[str], true: Sequence[str]) -> float:
    """F1 of two multisets of words."""
    common = sum((Counter(said) & Counter(true)).values())
    return 2 * common / (len(said) + len(true)) if common else 0.0


def listed(text: str, after: str = ": ") -> list[str]:
    """The items of the last list of a text: what stands behind the last colon, comma by comma."""
    return [one.strip(" .\n") for one in text.rpartition(after)[2].split(",")]


def story(rng: Random, kept: Sequence[str]) -> str:
    """A few words of filler with others among them, in a random order."""
    said = [*rng.sample(FILLER, 14), *kept]
    rng.shuffle(said)
    return " ".join(said)


def evaluated(expression: str) -> tuple[Fraction, list[int]] | None:
    """The value of an expression of + - * / and brackets, and the numbers in it; None for anything else."""
    if len(expression) > 200:
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        return _value(tree), [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if not isinstance(node, ast.BinOp):
        raise TypeError(node)
    left, right = _value(node.left), _value(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Div):
        return left / right
    raise TypeError(node)


def calls(name: str, *arguments: str) -> Message:
    """A message that calls one tool, once for each of the arguments (JSON)."""
    return assistant("", *(ToolCall(id=f"call-{n}", name=name, arguments=one) for n, one in enumerate(arguments)))
