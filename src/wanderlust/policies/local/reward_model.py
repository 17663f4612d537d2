"""Reward models in this process: a language model whose head gives one score in place of logits.

On disk it is what `transformers` calls a model for sequence classification with one label, the usual form of reward
models, so others load it too. CALIBRATION_FILE beside it says how its score is read as a probability.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from transformers import AutoModelForSequenceClassification

from wanderlust.errors import ContextFull, StoreError, UsageError
from wanderlust.policies.base import Hardware
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.checkpoints import MAX_ONE_THREAD_PARAMETERS
from wanderlust.policies.local.device import one_thread, resolve_device, to_device_fp32
from wanderlust.policies.local.fast_llama import fast_llama_for
from wanderlust.policies.local.pretrained import SCORE_HEAD, load_pretrained
from wanderlust.types import Message, Tool

CALIBRATION_FILE = "reward_model.json"
MAX_LOGIT = 50.0
"""Log-odds beyond it are as sure as a float can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """How a score is read: (score - centre) / temperature are log-odds."""

    temperature: float = 1.0
    """By which differences of scores are divided, so that their sigmoid is the share of pairs that go that way."""
    centre: float = 0.0
    """Mean score of the held-out answers."""

    def save(self, folder: Path) -> None:
        """Write it beside the weights."""
        (folder / CALIBRATION_FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote; scores as they are where nothing was calibrated. StoreError for anything else."""
        file = folder / CALIBRATION_FILE
        if not file.exists():
            return cls()
        try:
            body = json.loads(file.read_text())
            scale = cls(temperature=float(body["temperature"]), centre=float(body["centre"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"cannot read {file}: {type(error).__name__}: {error}") from error
        if not scale.temperature > 0:
            raise StoreError(f"cannot read {file}: its temperature is {scale.temperature}")
        return scale


def with_score_head(model: Any, tokenizer: Any) -> Any:
    """The model with a head for one score in place of its output embedding; the head begins at 0.

    The trunk is taken over, not copied. Raises UsageError for kinds that `transformers` knows no such head of.
    """
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    ends, others = Renderer(tokenizer).end_ids, (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id)
    # `transformers` scores a padded row at its last token that is no padding, so an end of turn must be none.
    config.pad_token_id = next((id for id in others if id is not None and id not in ends), None)
    try:
        with torch.device("meta"):
            scored = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise UsageError(f"transformers has no {config.model_type} model with a score: take another kind") from error
    if not isinstance(getattr(scored, SCORE_HEAD, None), torch.nn.Linear):
        raise UsageError(f"a {type(scored).__name__} has no linear head for scores: take another kind of model")
    setattr(scored, scored.base_model_prefix, model.base_model)
    head = torch.nn.Linear(getattr(scored, SCORE_HEAD).in_features, 1, bias=False)
    torch.nn.init.zeros_(head.weight)
    setattr(scored, SCORE_HEAD, head.to(model.device))
    return scored.eval()


def scored_ids(renderer: Renderer, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
    """Ids of a conversation up to the end of its last answer, cut where sampling cuts them.

    The score is read at the last one. Raises UsageError where there is no answer, PolicyFailure where the template
    refuses the conversation.
    """
    last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if last < 0:
        raise UsageError("there is no answer of the assistant to score")
    texts = renderer.answer_text_at(messages, last, tools)
    if texts is None:
        return renderer.encode(renderer.text(messages[: last + 1], tools, asks=False))
    return renderer.encode(texts[0]) + renderer.encode(texts[1])


class RewardScorer:
    """A reward model that is only read."""

    def __init__(self, model: Any, tokenizer: Any, scale: ScoreScale | None = None):
        self.model, self.renderer, self.scale = model.eval(), Renderer(tokenizer), scale or ScoreScale()
        self.max_positions = int(getattr(model.config, "max_position_embeddings", 0) or 2**31)
        self._own = fast_llama_for(model)

    @classmethod
    def load(cls, folder: Path, hardware: Hardware) -> Self:
        """The reward model of a checkpoint folder. StoreError where there is none."""
        model, tokenizer = load_pretrained(folder, scores=True)
        if model.num_parameters() < MAX_ONE_THREAD_PARAMETERS:
            one_thread()
        return cls(to_device_fp32(model, resolve_device(hardware)), tokenizer, ScoreScale.load(folder))

    def log_odds(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> float:
        """Log-odds that the last answer is preferred to a typical one. Raises ContextFull for too long a text."""
        ids = scored_ids(self.renderer, messages, tools)
        if len(ids) > self.max_positions:
            raise ContextFull(f"a text of {len(ids)} tokens does not fit the reward model's {self.max_positions}")
        value = (self.score(ids) - self.scale.centre) / self.scale.temperature
        return max(min(value, MAX_LOGIT), -MAX_LOGIT)

    @torch.inference_mode()
    def score(self, ids: Sequence[int]) -> float:
        """The score at the last id, as the head gives it."""
        row = torch.tensor([list(ids)], device=self.model.device)
        if self._own is not None:
            hidden = self._own.forward_rows(row, keep=torch.tensor([len(ids) - 1], device=row.device))[0]
        else:
            hidden = self.model.base_model(input_ids=row, use_cache=False).last_hidden_state[0, -1]
        return float(getattr(self.model, SCORE_HEAD)(hidden))
