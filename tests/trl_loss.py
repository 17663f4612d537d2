"""The gradient of TRL's `_compute_loss` over given rows, printed as one JSON list; runs in TRL's own environment.

Usage: python trl_loss.py ASKED.json
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

asked = json.loads(Path(sys.argv[1]).read_text())
model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float64)
model.train(False)
rows = asked["rows"]
starts = [next(i for i, (_, on) in enumerate(row["sequence"]) if on) for row in rows]
longest, behind = max(starts), max(len(row["sequence"]) - s for row, s in zip(rows, starts, strict=True))


def padded(values, width, *, left=False, fill=0):
    gap = [fill] * (width - len(values))
    return [*gap, *values] if left else [*values, *gap]


prompts, completions, prompt_mask, completion_mask, tool_mask, old, held = ([] for _ in range(7))
for row, start in zip(rows, starts, strict=True):
    ids, on = [t for t, _ in row["sequence"]], [s for _, s in row["sequence"]]
    prompts.append(padded(ids[:start], longest, left=True))
    prompt_mask.append(padded([1] * start, longest, left=True))
    completions.append(padded(ids[start:], behind))
    completion_mask.append(padded([1] * (len(ids) - start), behind))
    tool_mask.append(padded([int(s) for s in on[start:]], behind))
    for out, values in ((old, row["old"]), (held, row["reference"] or [0.0] * len(row["old"]))):
        rest = iter(values)
        out.append(padded([next(rest) if s else 0.0 for s in on[start:]], behind))


class Bare(GRPOTrainer):
    """The loss alone: no data, no sampling, no optimizer."""

    def __init__(self):
        count = sum(map(sum, tool_mask))
        self.model = self.model_wrapped = model
        self.accelerator = Accelerator(cpu=True)
        self.args = SimpleNamespace(
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            delta=None,
            use_bias_correction_kl=False,
            max_completion_length=asked["constant"],
            average_tokens_across_devices=False,
            report_to=[],
        )
        self.beta, self.loss_type = asked["beta"], asked["loss_type"]
        self.epsilon_low, self.epsilon_high = asked["low"], asked["high"]
        self.importance_sampling_level, self.temperature = asked["level"], 1.0
        self.max_completion_length = asked["constant"]
        self.top_entropy_quantile, self.off_policy_mask_threshold = 1.0, None
        self.use_vllm = self.vllm_importance_sampling_correction = False
        self.current_gradient_accumulation_steps, self.num_items = 1, count
        self.model_kwarg_keys, self.tools, self.use_liger_kernel = set(), True, False
        self.router_aux_loss_coef, self.aux_loss_enabled, self.aux_loss_coef = 0.0, False, 0.0
        self.chat_template_kwargs, self._step = {}, 0
        self._entropy_bonus_enabled, self.use_adaptive_entropy = bool(asked["entropy"]), False
        self.entropy_coef, self._last_world_entropy = asked["entropy"], 0.0
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, **_):
        """Plain log-probabilities: TRL's own are made by a fused head that this model does not have."""
        logits = model(input_ids, attention_mask=attention_mask).logits[:, :-1][:, -logits_to_keep:]
        logp, targets = logits.log_softmax(-1), input_ids[:, -logits_to_keep:]
        return logp.gather(2, targets[..., None])[..., 0], -(logp.exp() * logp).sum(-1), None


trainer = Bare()
inputs = {
    "prompt_ids": torch.tensor(prompts),
    "prompt_mask": torch.tensor(prompt_mask),
    "completion_ids": torch.tensor(completions),
    "completion_mask": torch.tensor(completion_mask),
    "tool_mask": torch.tensor(tool_mask),
    "advantages": torch.tensor([row["advantage"] for row in rows], dtype=torch.float64),
    "old_per_token_logps": torch.tensor(old, dtype=torch.float64),
    "num_items_in_batch": torch.tensor(trainer.num_items),
}
if asked["beta"]:
    inputs["ref_per_token_logps"] = torch.tensor(held, dtype=torch.float64)
trainer._compute_loss(model, inputs).backward()
print(json.dumps(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).tolist()))
