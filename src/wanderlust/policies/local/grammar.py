"""Answers that keep to a JSON schema: which tokens may come next, by `llguidance`."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from torch import Tensor

from wanderlust.errors import PolicyFailure

WHITESPACE: Any = {"whitespace_pattern": " ?"}
"""At most one space between the parts of an answer: a small model may else write white space for ever."""


class TokenMatcher:
    """One answer's place in its grammar. Where the grammar has no way on, only the ends of a turn are allowed."""

    def __init__(self, matcher: Any, end_ids: Sequence[int]):
        self.matcher, self.end_ids = matcher, end_ids

    def allowed(self, vocabulary: int) -> Tensor:
        """Which of so many tokens may come next, bool [V]; at least one."""
        mask = torch.zeros(vocabulary, dtype=torch.bool)
        if not self.matcher.is_error():
            bits = np.unpackbits(np.frombuffer(self.matcher.compute_bitmask(), np.uint8), bitorder="little")
            mask[: len(bits)] = torch.from_numpy(bits[:vocabulary].astype(bool))
        if not bool(mask.any()):
            mask[self.end_ids] = True
        return mask

    def take(self, token: int) -> None:
        """Go on with a token that was allowed."""
        self.matcher.consume_token(token)


class Grammars:
    """Matchers for one tokenizer, whose table of tokens is made at the first one."""

    def __init__(self, tokenizer: Any, end_ids: AbstractSet[int]):
        self.tokenizer, self.end_ids = tokenizer, end_ids
        self._table: Any = None

    def matcher(self, schema: str) -> TokenMatcher:
        """A matcher for an answer under a JSON schema. PolicyFailure where that or the tokenizer cannot be used."""
        try:
            if self._table is None:
                self._table = from_tokenizer(self.tokenizer, eos_token=sorted(self.end_ids))
            matcher = LLMatcher(self._table, LLMatcher.grammar_from_json_schema(schema, defaults=WHITESPACE))
        except (ValueError, TypeError, RuntimeError) as error:
            raise PolicyFailure(f"answers cannot be held to this JSON schema: {error}") from error
        if matcher.is_error():
            raise PolicyFailure(f"answers cannot be held to this JSON schema: {matcher.get_error()}")
        return TokenMatcher(matcher, sorted(self.end_ids))
