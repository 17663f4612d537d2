"""Arguments that several commands take, described once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.errors import UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, Hardware, ThinkingBudget, TokenPrices, ToolCalls
from wanderlust.policies.resolve import PolicyOptions

PositiveInt = Annotated[int, Parameter(validator=Number(gte=1))]
PortNumber = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
EnvironmentName = Annotated[
    str,
    Parameter(
        help="Name of an environment, package.module:Name or file.py:Name, and settings after it:"
        " reasoning-gym,dataset=countdown"
    ),
]
PolicyName = Annotated[
    str,
    Parameter(
        help="A run or checkpoint folder, with settings after it (,device=cuda,precision=bf16), an endpoint's URL, a"
        " player of the environment (its oracle, for one), a script as package.module:Name, or an evaluation's folder,"
        " which is replayed."
    ),
]
MorePaths = Annotated[Path, Parameter(help="More of them.")]
RunPath = Annotated[Path, Parameter(help="Folder of a run, or its rollouts.db.")]
HardwareOptions = Annotated[Hardware, Parameter(name="*")]
LoggerNames = Annotated[
    tuple[str, ...], Parameter(help="Send metrics to tensorboard, wandb, trackio or mlflow as well; may be repeated.")
]
JsonFlag = Annotated[bool, Parameter(help="Print the result as one JSON object.")]

KEY_SUGGESTION = (
    f"the endpoint wants a key and none was sent: set {API_KEY_VARIABLE}, or name its variable with --api-key"
)


def refuse_existing(out: Path | None) -> None:
    """Raises UsageError when there is something at `out` already."""
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already: name another folder with --out")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Sampling options."""

    model: str | None = None
    """Name of the model, where the policy is a URL."""
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Sampling temperature; 0 is greedy. Default: 1 for checkpoints, the server's own for endpoints."""
    greedy: bool = False
    """Always take the likeliest answer: the same as --temperature 0."""
    max_tokens: PositiveInt | None = None
    """Bound of one answer. Default: 256 for checkpoints, the server's own for endpoints."""
    min_thinking: PositiveInt | None = None
    """Tokens of thinking of a checkpoint at least: an earlier </think> is taken away, and " Wait," written for it."""
    max_thinking: PositiveInt | None = None
    """Tokens of thinking of a checkpoint at most, after which </think> is written."""
    tool_calls: ToolCalls | None = None
    """text: tools and calls are text in the messages. Default: a checkpoint's own form, where it has one that is known,
    and an endpoint's API."""
    seed: int = 0
    """Random seed."""
    api_key: str | None = None
    """Name of the environment variable that holds the endpoint's key. Default: WANDER_API_KEY, if it is set."""

    extra_body: str | None = None
    """JSON object of further fields for each request to an endpoint: '{"top_p": 0.9, "reasoning_effort": "low"}'."""
    extra_headers: str | None = None
    """JSON object of further headers for each request to an endpoint: '{"anthropic-beta": "context-1m-2025-08-07"}'."""

    def recorded(self) -> dict[str, Any]:
        """The options that decide what is played; headers may be secret, and are not kept."""
        return {name: value for name, value in asdict(self).items() if name != "extra_headers"}

    def policy_options(self, *, greedy: bool) -> PolicyOptions:
        """As the policies take it."""
        if self.greedy and self.temperature:
            raise UsageError("--greedy and --temperature exclude each other")
        temperature = 0.0 if greedy or self.greedy else self.temperature
        headers = _json_object("--extra-headers", self.extra_headers, '{"anthropic-beta": "context-1m-2025-08-07"}')
        if not all(isinstance(value, str) for value in (headers or {}).values()):
            raise UsageError("--extra-headers must be a JSON object of strings")
        thinking = None
        if self.min_thinking is not None or self.max_thinking is not None:
            thinking = ThinkingBudget(min_tokens=self.min_thinking or 0, max_tokens=self.max_thinking)
        return PolicyOptions(
            model=self.model,
            temperature=temperature,
            max_tokens=self.max_tokens,
            thinking=thinking,
            tool_calls=self.tool_calls or "template",
            seed=self.seed,
            api_key=self.api_key,
            extra_body=_json_object("--extra-body", self.extra_body, '{"top_p": 0.9}'),
            headers=headers,
        )


ANSWER_DEFAULTS = ModelOptions()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """What an endpoint's tokens cost."""

    price_in: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Dollars per million tokens read."""
    price_out: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Dollars per million tokens written."""

    def prices(self) -> TokenPrices | None:
        """The prices; None when none was named."""
        if self.price_in is None and self.price_out is None:
            return None
        return TokenPrices(input=self.price_in or 0.0, output=self.price_out or 0.0)


DEFAULT_PRICES = PriceOptions()


def _json_object(option: str, text: str | None, example: str) -> dict[str, Any] | None:
    """The JSON object that an option gives. Raises UsageError for anything else."""
    if text is None:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{option} must be a JSON object, like {example}")
    return fields
