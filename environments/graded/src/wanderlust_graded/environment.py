"""Graders of OpenAI's reinforcement fine-tuning as rubrics, and its data files as environments.

A grader file (`string_check`, `text_similarity`, `score_model`, `python`, `multi`) scores the last answer, `sample`,
against its row of data, `item`. What cannot be graded (a missing variable, a script that raises, a model without a
score) is a failed rollout, where the service gave 0. Source: OpenAI's guide to graders and its API reference.

Not covered: `cosine` and `meteor`, which need a model or data of their own; `label_model`; audio and images. Python
graders find the standard library and what the sandbox shows, not the packages of the service's image.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from wanderlust._lazy import needs_extra
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import RubricFailure, UsageError, one_line
from wanderlust.openai_types import call_to_wire, message_from_wire
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.rubrics.model_request import JudgeClient, ParseError, object_format
from wanderlust.rubrics.rubric import Reward, RewardResult, Rubric
from wanderlust.tasks.datasets import numbered_rows
from wanderlust.tools.sandbox import SandboxBounds, open_sandbox
from wanderlust.types import Message, Policy, Task, Trajectory

PYTHON_SECONDS = 120.0
"""Wall-clock seconds of a python grader."""
_VARIABLE = re.compile(r"\{\{\s*(item|sample)((?:\.[\w-]+|\[\d+\])+)\s*\}\}")
_ANY_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_SCRIPT = """import json, sys
job = json.load(sys.stdin)
defined = {"__name__": "grader"}
exec(job["source"], defined)
print("\\n" + json.dumps(float(defined["grade"](job["sample"], job["item"]))))
"""
_OPERATORS: Mapping[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}

Names: TypeAlias = Mapping[str, Any]
"""The namespaces `item` and `sample`."""
Grade: TypeAlias = Callable[[Names], Awaitable["GraderResult"]]
ModelPolicies: TypeAlias = Callable[[str], Policy]
"""Gives the policy that stands for a model of a `score_model` grader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderResult:
    """What a grader gave."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Of a `multi` grader, the value of each grader in it."""


def fill_template(text: str, names: Names) -> str:
    """The text with its variables' values; what is no text is JSON. Raises RubricFailure for a missing variable."""

    def value(match: re.Match[str]) -> str:
        found: Any = names[match[1]]
        for step in re.findall(r"\.([\w-]+)|\[(\d+)\]", match[2]):
            try:
                found = found[step[0]] if step[0] else found[int(step[1])]
            except (KeyError, IndexError, TypeError):
                raise RubricFailure(f"there is no {match[1]}{match[2]} to grade with") from None
        return found if isinstance(found, str) else json.dumps(found)

    return _VARIABLE.sub(value, text)


def load_grader(
    source: Mapping[str, Any] | str | Path,
    *,
    models: ModelPolicies | None = None,
    readable: Sequence[Path] = (),
) -> Rubric:
    """Make a rubric of a grader, or of a JSON file that holds one.

    `models` gives the policy for the model that a `score_model` grader names. `readable` are folders that python
    graders may read, for packages. The values of a `multi` grader's graders are recorded as metrics. Raises UsageError,
    which names the grader and the field.
    """
    found: Any = source
    if isinstance(source, str | Path):
        file = Path(source)
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read the grader {file}: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{file} is no JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise UsageError("a grader is a JSON object with a type")
    if isinstance(found.get("grader"), Mapping):  # as in a job's `method`
        found = found["grader"]
    grade = _Graders(models=models, readable=tuple(readable)).make(found, "the grader")

    async def grader(task: Task, trajectory: Trajectory) -> RewardResult:
        result = await grade({"item": task.info.get("item", {}), "sample": sample_of(trajectory)})
        return RewardResult(value=result.value, metrics=result.parts)

    return Rubric(Reward(grader, name=str(found.get("name") or "grader")))


def sample_of(trajectory: Trajectory) -> dict[str, Any]:
    """The namespace `sample` of the last answer."""
    action = trajectory.turns[-1].action if trajectory.turns else Message("assistant", "")
    sample: dict[str, Any] = {"output_text": action.content}
    sample["output_tools"] = [call_to_wire(call) for call in action.tool_calls]
    try:
        sample["output_json"] = json.loads(action.content)
    except (ValueError, RecursionError):
        sample["output_json"] = None
    return sample


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graders:
    """Makes graders of their JSON."""

    models: ModelPolicies | None
    readable: tuple[Path, ...]

    def make(self, source: Mapping[str, Any], where: str) -> Grade:
        """The grader of any type. Raises UsageError."""
        kinds: Mapping[str, Callable[[Mapping[str, Any], str], Grade]] = {
            "string_check": self._string_check,
            "text_similarity": self._text_similarity,
            "score_model": self._score_model,
            "python": self._python,
            "multi": self._multi,
        }
        kind = source.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise UsageError(f"{where} has the type {kind!r}; the types are {', '.join(kinds)}")
        return kinds[kind](source, where)

    def _string_check(self, source: Mapping[str, Any], where: str) -> Grade:
        given, reference = _template(source, "input", where), _template(source, "reference", where)
        checks: Mapping[str, Callable[[str, str], bool]] = {
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "like": lambda a, b: b in a,
            "ilike": lambda a, b: b.casefold() in a.casefold(),
        }
        check = _choice(source, "operation", checks, where=where)

        async def grade(names: Names) -> GraderResult:
            return GraderResult(value=float(check(fill_template(given, names), fill_template(reference, names))))

        return grade

    def _text_similarity(self, source: Mapping[str, Any], where: str) -> Grade:
        given, reference = _template(source, "input", where), _template(source, "reference", where)
        similarity = _choice(source, "evaluation_metric", _similarities(), where=where)

        async def grade(names: Names) -> GraderResult:
            return GraderResult(value=similarity(fill_template(given, names), fill_template(reference, names)))

        return grade

    def _score_model(self, source: Mapping[str, Any], where: str) -> Grade:
        model, items = source.get("model"), source.get("input")
        if not isinstance(model, str) or not isinstance(items, list) or not items:
            raise UsageError(f"{where} needs a model and a list of messages as its input")
        messages = [_message(item, f"{where}, message {number}") for number, item in enumerate(items, 1)]
        low, high = source.get("range") or (0.0, 1.0)
        if self.models is None:
            raise UsageError(f"{where} asks the model {model!r}: say which policy stands for it (judge=...)")
        client = JudgeClient(
            policy=self.models(model),
            name=where,
            model=model,
            form="a JSON object with the number `result`",
            response_format=object_format("score", {"result": {"type": "number", "minimum": low, "maximum": high}}),
        )

        def read(answer: str) -> float | ParseError:
            found = _last_number(answer)
            if found is None or not low <= found <= high:
                return ParseError(reason=f"it has no score from {low:g} to {high:g}")
            return found

        async def grade(names: Names) -> GraderResult:
            asked = [Message(role, fill_template(text, names)) for role, text in messages]
            asked.append(Message("system", f'Answer with JSON alone: {{"result": SCORE}}, from {low:g} to {high:g}.'))
            return GraderResult(value=(await client.ask(asked, read)).value)

        return grade

    def _python(self, source: Mapping[str, Any], where: str) -> Grade:
        code = source.get("source")
        if not isinstance(code, str):
            raise UsageError(f"{where} needs its script in `source`")
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            raise UsageError(f"{where}: the script has a mistake in line {error.lineno}: {error.msg}") from error
        if not any(isinstance(one, ast.FunctionDef) and one.name == "grade" for one in tree.body):
            raise UsageError(f"{where}: the script defines no function grade(sample, item)")

        async def grade(names: Names) -> GraderResult:
            job = json.dumps({"source": code, **names}).encode()
            sandbox = await open_sandbox(SandboxBounds(seconds=PYTHON_SECONDS), readable=self.readable)
            try:
                ran = await sandbox.run(["python3", "-c", _SCRIPT], stdin=job)
            finally:
                await sandbox.close()
            value = _last_number(ran.stdout.decode(errors="replace").rpartition("\n\n")[2] or ran.stdout.decode())
            if ran.code != 0 or value is None:
                last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                raise RubricFailure(f"{where}: the script gave no number: {one_line(last) or f'exit {ran.code}'}")
            return GraderResult(value=value)

        return grade

    def _multi(self, source: Mapping[str, Any], where: str) -> Grade:
        inner, formula = source.get("graders"), source.get("calculate_output")
        if isinstance(inner, Mapping) and isinstance(inner.get("type"), str):  # a single one, under its own name
            inner = {str(inner.get("name")): inner}
        if not isinstance(inner, Mapping) or not inner or not isinstance(formula, str):
            raise UsageError(f"{where} needs graders by name, and calculate_output")
        graders = {name: self.make(one, f"{where}, {name}") for name, one in inner.items()}
        tree = parse_formula(formula, graders, where)

        async def grade(names: Names) -> GraderResult:
            parts = {name: (await one(names)).value for name, one in graders.items()}
            try:
                return GraderResult(value=float(_evaluate(tree, parts)), parts=parts)
            except (ArithmeticError, ValueError, TypeError) as error:
                raise RubricFailure(f"{where}: {formula!r} cannot be computed: {error}") from error

        return grade


def parse_formula(formula: str, names: Mapping[str, Any], where: str) -> ast.expr:
    """A formula over the names: numbers, + - * / ^, and functions. Raises UsageError for anything else."""
    try:
        tree = ast.parse(formula.replace("^", "**"), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{where}: calculate_output {formula!r} is no formula") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in _FUNCTIONS:
            raise UsageError(f"{where}: calculate_output names {node.id!r}; the graders are {', '.join(names)}")
        number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
        known = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Name | ast.Load) or type(node) in _OPERATORS
        if not (number or call or known):
            raise UsageError(f"{where}: calculate_output {formula!r} has more than numbers, graders and functions")
    return tree


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_evaluate(one, values) for one in args))
    raise TypeError(f"no number: {ast.dump(node)}")


def _template(source: Mapping[str, Any], name: str, where: str) -> str:
    text = source.get(name)
    if not isinstance(text, str):
        raise UsageError(f"{where} needs a text as its {name}")
    return _checked(text, where)


def _checked(text: str, where: str) -> str:
    for match in _ANY_VARIABLE.finditer(text):
        if not _VARIABLE.fullmatch(match[0]):
            raise UsageError(f"{where}: {one_line(match[0])} is no variable: they begin with item. or sample.")
    return text


def _choice(source: Mapping[str, Any], name: str, choices: Mapping[str, Any], *, where: str) -> Any:
    chosen = source.get(name)
    if not isinstance(chosen, str) or chosen not in choices:
        raise UsageError(f"{where} has the {name} {chosen!r}; known here are {', '.join(choices)}")
    return choices[chosen]


def _message(item: Any, where: str) -> tuple[Any, str]:
    role = item.get("role") if isinstance(item, Mapping) else None
    if role not in ("user", "assistant", "system", "developer"):
        raise UsageError(f"{where} has the role {role!r}")
    content = item.get("content")
    parts = content if isinstance(content, list) else [content]
    said = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    texts = [text for text in said if isinstance(text, str)]
    if len(texts) < len(said):
        raise UsageError(f"{where} has content that is no text")
    return "system" if role == "developer" else role, _checked("".join(texts), where)


def _last_number(text: str) -> float | None:
    """The field `result` of a JSON object, or the last number of the text."""
    found = re.findall(r'"result"\s*:\s*(-?[\d.]+(?:[eE][-+]?\d+)?)', text) or re.findall(
        r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text
    )
    try:
        return float(found[-1]) if found else None
    except ValueError:
        return None


def _similarities() -> dict[str, Callable[[str, str], float]]:
    """The measures of `text_similarity`, from 0 to 1, of a text and its reference."""

    def fuzzy_match(text: str, reference: str) -> float:
        with needs_extra("graders"):
            from rapidfuzz.fuzz import ratio
        return float(ratio(text, reference)) / 100

    def bleu(text: str, reference: str) -> float:
        with needs_extra("graders"):
            from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
        smoothing = SmoothingFunction().method1
        return float(sentence_bleu([reference.split()], text.split(), smoothing_function=smoothing))

    def gleu(text: str, reference: str) -> float:
        with needs_extra("graders"):
            from nltk.translate.gleu_score import sentence_gleu
        return float(sentence_gleu([reference.split()], text.split()))

    def rouge(kind: str) -> Callable[[str, str], float]:
        def measure(text: str, reference: str) -> float:
            with needs_extra("graders"):
                from rouge_score.rouge_scorer import RougeScorer
            return float(RougeScorer([kind]).score(reference, text)[kind].fmeasure)

        return measure

    rouges = {f"rouge_{n}": rouge(f"rouge{n}") for n in range(1, 6)} | {"rouge_l": rouge("rougeL")}
    return {"fuzzy_match": fuzzy_match, "bleu": bleu, "gleu": gleu, **rouges}


EXAMPLE = Path(__file__).parent / "example"
"""Rows and a grader to try."""


class GradedRows(SingleTurnEnvironment):
    """A data file of OpenAI's reinforcement fine-tuning with its grader: one answer to each row's `messages`.

    `wander train graded,data=train.jsonl,eval_data=test.jsonl,grader=grader.json`. All fields of a row are the grader's
    `item`. `judge` is the policy for every model that graders name, as `--policy` takes it.
    """

    def __init__(self, data: str = "", grader: str = "", *, eval_data: str = "", judge: str = ""):
        """Without `eval_data` the split `eval` has the rows of `data`; without `data`, 20 rows and a grader of ours.

        Raises UsageError, with file and line.
        """
        if bool(data) != bool(grader):
            raise UsageError("rows and their grader belong together: name both data= and grader=")
        models = None if not judge else lambda name: resolve_policy(judge, self, PolicyOptions(model=name)).policy
        train, held_out = (data, eval_data or data) if data else (EXAMPLE / "train.jsonl", EXAMPLE / "eval.jsonl")
        rubric = load_grader(grader or EXAMPLE / "grader.json", models=models)
        super().__init__({"train": _rows(train), "eval": _rows(held_out)}, rubric=rubric)


def _rows(file: Path | str) -> list[Task]:
    tasks = []
    for number, (where, row) in enumerate(numbered_rows(Path(file))):
        wire = row.get("messages")
        if not isinstance(wire, list) or not all(isinstance(one, Mapping) for one in wire) or not wire:
            raise UsageError(f"{where}: a row needs its prompt as a list of messages")
        if row.get("tools"):
            raise UsageError(f"{where}: rows with tools cannot be played here: nobody answers the calls")
        roles = [{**one, "role": "system" if one.get("role") == "developer" else one.get("role")} for one in wire]
        prompt = tuple(message_from_wire(one) for one in roles)
        tasks.append(Task(id=str(row.get("id", number)), prompt=prompt, info={"item": dict(row)}))
    return tasks
