"""GRPO in TRL 1.16.0 with environments of ours: `GAME STEPS FOLDER`, where GAME is `sums` or `twice`.

A tiny Llama is first shown some games, played half right, so that it calls tools at all. Prints one JSON object: every
rollout with its row, its completion and the reward that TRL was given, and the trainer's own log.
"""

import json
import os
import random
import sys
from pathlib import Path

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import get_json_schema

from sums import Sums
from toys import WORDS, Twice
from wanderlust.adapters.trl import EPISODE_OVER, trl_environments

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
PROMPTS, SIBLINGS, SHOWN = 4, 4, 160


def call(name, **arguments):
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def told(name, text):
    return {"role": "tool", "name": name, "content": text}


def game_of_sums(rng):
    a, b = rng.randint(1, 4), rng.randint(1, 4)
    said = a + b if rng.random() < 0.5 else rng.randint(2, 8)
    asked = {"role": "user", "content": f"{a} + {b}"}
    end = {"role": "assistant", "content": str(said)}
    return [asked, call("add", numbers=[a, b]), told("add", str(a + b)), end]


def game_of_twice(rng):
    place = rng.randrange(4)
    shown = {"role": "user", "content": WORDS[place]}
    first, second = call("act", text=rng.choice(WORDS)), call("act", text=rng.choice(WORDS))
    return [
        shown,
        first,
        told("act", WORDS[(place + 2) % 4]),
        second,
        told("act", EPISODE_OVER),
        {"role": "assistant", "content": "."},
    ]


GAMES = {"sums": (Sums, game_of_sums), "twice": (Twice, game_of_twice)}


def tokenizer_for(texts):
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=512, special_tokens=[*SPECIAL], initial_alphabet=alphabet, show_progress=False),
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    made.chat_template = template()
    return made


def template():
    return (Path(trl.__file__).parent / "chat_templates" / "qwen3_instruct_2507.jinja").read_text()


def taught(tokenizer, texts):
    """A Llama that has been shown the texts."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model, rng = LlamaForCausalLM(config), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = [tokenizer(text)["input_ids"] for text in texts]
    for _ in range(120):
        batch = tokenizer.pad({"input_ids": rng.sample(rows, 8)}, return_tensors="pt", padding_side="right")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def train(game, steps, folder):
    env, show = GAMES[game]
    rng, seen = random.Random(1), []
    with trl_environments(env()) as factory:
        place = factory()
        tools = [getattr(place, name) for name in public(place)]
        shown = [show(rng) for _ in range(SHOWN)]
        bare = tokenizer_for([])
        texts = [bare.apply_chat_template(talk, tools=schemas(tools), tokenize=False) for talk in shown]
        tokenizer = tokenizer_for(texts)
        settings = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=PROMPTS * SIBLINGS,
            num_generations=SIBLINGS,
            max_steps=steps,
            max_completion_length=160,
            learning_rate=1e-3,
            beta=0.0,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
            max_tool_calling_iterations=4,
        )
        trainer = trl.GRPOTrainer(
            model=taught(tokenizer, texts),
            args=settings,
            train_dataset=Dataset.from_list(factory.rows(len(list(env().tasks())), seeds=(0, 1))),
            processing_class=tokenizer,
            environment_factory=factory,
            reward_funcs=factory.reward_funcs,
        )
        watch(trainer, seen)
        trainer.train()
        logs = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    return {"rollouts": seen, "logged": logs}


def public(place):
    return [name for name in dir(place) if not name.startswith("_") and name not in ("reset", "get_reward")]


def schemas(tools):
    return [get_json_schema(tool) for tool in tools]


def watch(trainer, seen):
    """Keep what every reward function was given and said."""
    for place, judge in enumerate(trainer.reward_funcs):

        def judged(*args, _judge=judge, **given):
            rewards = _judge(*args, **given)
            seen.extend(
                {"index": index, "seed": seed, "completion": said, "reward": reward}
                for index, seed, said, reward in zip(
                    given["index"], given["seed"], given["completions"], rewards, strict=True
                )
            )
            return rewards

        trainer.reward_funcs[place] = judged


if __name__ == "__main__":
    told_all = train(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print(json.dumps(told_all))
