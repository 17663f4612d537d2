"""Offline training: rows of any maker, masks by role, packed updates, resuming, SFT and DPO as their formulas say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from templates import QWEN3_LIKE
from toys import SHAPE, TOKENIZER
from wanderlust import Environment, Episode, Rubric, evaluate_sync, exact, finetune
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.checkpoints import resolve_checkpoint
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.store.run import load_run
from wanderlust.training.batch.samples import Sample, imitation_sample
from wanderlust.training.checkpoint import load_state
from wanderlust.training.conversations import conversation_samples, epoch_batches, parse_row
from wanderlust.training.finetune import REFERENCE_FILE, resume_finetuning
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.losses import PREFERENCE_LOSS
from wanderlust.training.optimizer import weights_of
from wanderlust.training.tiny_model import fresh_model
from wanderlust.types import Message, Task, Trajectory, Turn, assistant, system, user
