"""Rollouts as JSON data (records, conversations for supervised fine-tuning, trajectories in ATIF 1.8) and as Parquet.

ATIF is the interchange format of the Harbor framework (its RFC 0001). Fields without a place in it stand in its `extra`
fields. A rewritten context is written out once more, marked as such; results of calls that the step before did not make
are steps of the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

from wanderlust import __version__
from wanderlust._lazy import needs_extra
from wanderlust.openai_types import message_to_wire, tool_to_wire
from wanderlust.store.reader import RolloutRow, RunReader
from wanderlust.types import DeclaredTool, Group, Message, Rollout, Trajectory, Turn, decode_arguments

MIN_REWARD_RANGE = 1e-6
"""Smallest difference of rewards between the two of a pair."""
CONVERSATION_COLUMNS = ("messages", "prompt", "completion", "tools")
"""Columns of `conversations` that are trained on; the others say where they come from."""
ATIF_VERSION = "ATIF-v1.8"
ATIF_USAGE_KEYS = ("prompt_tokens", "completion_tokens")


def render_atif(rollout: Rollout, trajectory: Trajectory, *, model: str | None = None) -> dict[str, Any] | None:
    """Render one seat's trajectory as an ATIF document; None when it has no messages, which ATIF cannot express."""
    steps = _Steps(model=model)
    for number, turn in enumerate(trajectory.turns):
        steps.add_turn(turn, trajectory.parent(number))
    if not steps.out:
        return None
    name, score = f"{rollout.task.id}/{rollout.seed}/{rollout.sample_index}", trajectory.score
    read, written = (sum(turn.usage.get(key, 0) for turn in trajectory.turns) for key in ATIF_USAGE_KEYS)
    reward = None if score is None else asdict(score)
    final = {"total_prompt_tokens": read or None, "total_completion_tokens": written or None, "extra": reward}
    about = {
        "task": rollout.task.id,
        "seed": rollout.seed,
        "sample_index": rollout.sample_index,
        "seat": trajectory.seat,
    }
    about |= {"status": str(rollout.status), "stop_reason": rollout.stop_reason, "error": rollout.error}
    return {
        "schema_version": ATIF_VERSION,
        "session_id": name,
        "trajectory_id": f"{name}/{trajectory.seat}",
        "agent": _without_none({"name": "wanderlust", "version": __version__, "model_name": model}),
        "steps": steps.out,
        "final_metrics": _without_none({**final, "total_steps": len(steps.out)}),
        "extra": about,
    }


@dataclass(slots=True, kw_only=True)
class _Steps:
    model: str | None
    out: list[dict[str, Any]] = field(default_factory=list)
    actions: list[dict[str, Any]] = field(default_factory=list)
    """Per turn, the step of its action."""
    ids: list[list[int]] = field(default_factory=list)
    """Per turn, the ids of its conversation after it."""

    def add_turn(self, turn: Turn, parent: int | None) -> None:
        before = self.out[-1] if self.out else None
        extra: dict[str, Any] = {"context": "rewritten"} if turn.resets_context else {}
        if parent is not None and parent != len(self.actions) - 1:
            before, extra = None, {"continues_step": self.actions[parent]["step_id"]}
        for message in turn.observation:
            if not self._answers(message, before):
                self._add(message, extra)
                before = self.out[-1]
        metrics: dict[str, Any] = {key: turn.usage.get(key) for key in ATIF_USAGE_KEYS}
        if (tokens := turn.tokens) is not None:  # the format wants the ids of the whole context, not of its new part
            prompt = [*(self.ids[parent][: tokens.offset] if parent is not None else ()), *tokens.prompt]
            metrics |= {"prompt_token_ids": prompt, "completion_token_ids": list(tokens.completion)}
            metrics["logprobs"] = list(tokens.logprobs)
        more = {"metrics": _without_none(metrics) or None} | ({"model_name": self.model} if self.model else {})
        self._add(turn.action, {"finish": turn.finish}, **more)
        self.actions.append(self.out[-1])
        self.ids.append([*prompt, *tokens.completion] if tokens is not None else [])

    def _answers(self, message: Message, before: dict[str, Any] | None) -> bool:
        """Add the message to the step before if it is the result of one of its calls; returns whether it is."""
        if message.role != "tool" or before is None:
            return False
        if message.tool_call_id not in [call["tool_call_id"] for call in before.get("tool_calls", ())]:
            return False
        results = before.setdefault("observation", {"results": []})["results"]
        results.append({"source_call_id": message.tool_call_id, "content": message.content})
        return True

    def _add(self, message: Message, extra: dict[str, Any], **more: Any) -> None:
        source = {"system": "system", "assistant": "agent"}.get(message.role, "user")
        if message.role == "tool":
            extra = {**extra, "role": "tool", "tool_call_id": message.tool_call_id}
        if message.images:
            extra = {**extra, "images": list(message.images)}
        calls = []
        for call in message.tool_calls:
            arguments = decode_arguments(call.arguments)
            whole = isinstance(arguments, dict)
            document = {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments if whole else {}}
            exact = whole and json.dumps(arguments, ensure_ascii=False) == call.arguments
            calls.append(document if exact else {**document, "extra": {"raw": call.arguments}})
        step = {
            "step_id": len(self.out) + 1,
            "source": source,
            "message": message.content,
            "reasoning_content": message.reasoning,
            "tool_calls": calls or None,
            "is_copied_context": True if source == "agent" and not more else None,
            "extra": extra or None,
        }
        self.out.append(_without_none({**step, **more}))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def rollout_to_json(rollout: Rollout, **more: Any) -> dict[str, Any]:
    """Convert a rollout without its tokens to JSON data; `more` comes first.

    A seat that had several conversations has those that ended before the last one as `earlier`.
    """
    trajectories = []
    for trajectory in rollout.trajectories:
        ends = [end for end in trajectory.ends if end != len(trajectory.turns) - 1]
        trajectories.append(
            {
                "seat": trajectory.seat,
                "messages": [_to_wire(message) for message in trajectory.messages],
                **({"earlier": [[*map(_to_wire, trajectory.conversation(end))] for end in ends]} if ends else {}),
                "tools": _tools_of(trajectory),
                "score": asdict(trajectory.score) if trajectory.score is not None else None,
            }
        )
    return {
        **more,
        "task": rollout.task.id,
        "seed": rollout.seed,
        "sample_index": rollout.sample_index,
        "status": str(rollout.status),
        "stop_reason": rollout.stop_reason,
        "error": rollout.error,
        "failure": asdict(rollout.failure) if rollout.failure is not None else None,
        "seconds": rollout.seconds,
        "answer": rollout.task.answer,
        "state": dict(rollout.state),
        "trajectories": trajectories,
    }


def _to_wire(message: Message) -> dict[str, Any]:
    """The message as endpoints write it, and its reasoning."""
    return message_to_wire(message) | ({"reasoning_content": message.reasoning} if message.reasoning else {})


def _tools_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """All tools that the seat was offered, once each."""
    offered: list[DeclaredTool] = []
    for turn in trajectory.turns:
        offered += [tool for tool in turn.tools if tool not in offered]
    return [tool_to_wire(tool) for tool in offered]


def conversations(rollout: Rollout, *, min_reward: float | None = None) -> Iterator[dict[str, Any]]:
    """Yield the conversations of each trainable seat with a score of at least `min_reward`; failed rollouts have none.

    A seat has more than one where the agent had: sub-agents, parallel calls, a context that was rewritten. Each has
    `messages`, and `tools` where the policy was offered some. Where the tools change on the way, so does the context:
    what follows is a row of its own, with `prompt` and `completion`, so that no answer is in two of them.
    """
    for trajectory in rollout.trajectories:
        score = trajectory.score
        if score is None or not trajectory.trainable or (min_reward is not None and score.reward < min_reward):
            continue
        about = {"task": rollout.task.id, "seat": trajectory.seat, "reward": score.reward}
        written = set[tuple[int, int]]()
        for end in trajectory.ends:
            for part in _parts(trajectory, end):
                if (part.turns[0], part.turns[-1]) not in written:  # several conversations may begin alike
                    written.add((part.turns[0], part.turns[-1]))
                    yield {**part.columns(trajectory), **about}


@dataclass(frozen=True, slots=True)
class _Part:
    """Turns of one conversation with the same tools in their context."""

    turns: list[int]
    tools: tuple[DeclaredTool, ...]

    def columns(self, trajectory: Trajectory) -> dict[str, Any]:
        messages = [_to_wire(message) for message in trajectory.conversation(self.turns[-1])]
        declared = {"tools": [tool_to_wire(tool) for tool in self.tools]} if self.tools else {}
        before = trajectory.parent(self.turns[0])
        if before is None:
            return {"messages": messages, **declared}
        asked = len(trajectory.conversation(before)) + len(trajectory.turns[self.turns[0]].observation)
        return {"prompt": messages[:asked], "completion": messages[asked:], **declared}


def _parts(trajectory: Trajectory, end: int) -> list[_Part]:
    """The conversation up to a turn, cut where other tools are offered; a turn without any reads those before it."""
    parts: list[_Part] = []
    for turn in trajectory.path(end):
        offered = trajectory.turns[turn].tools
        if parts and offered in ((), parts[-1].tools):
            parts[-1].turns.append(turn)
        else:
            parts.append(_Part([turn], offered))
    return parts


def preferences(group: Group, *, min_reward: float | None = None) -> Iterator[dict[str, Any]]:
    """Yield a pair per seat of the group's best and worst scored rollout: what they share, then how each went on.

    Seats whose rewards agree, or whose best is below `min_reward`, have none; nor have those whose two conversations
    differ before an answer, or are offered other tools than one another, or at another turn.
    """
    for seat in dict.fromkeys(t.seat for rollout in group.rollouts for t in rollout.trajectories if t.trainable):
        scored = [
            (t.score.reward, t)
            for r in group.rollouts
            for t in r.trajectories
            if t.seat == seat and t.score is not None
        ]
        if not scored:
            continue
        (best, chosen), (worst, rejected) = (pick(scored, key=lambda pair: pair[0]) for pick in (max, min))
        if best - worst <= MIN_REWARD_RANGE or best < (-inf if min_reward is None else min_reward):
            continue
        if not chosen.turns or not rejected.turns:
            continue
        parts = [_parts(trajectory, len(trajectory.turns) - 1) for trajectory in (chosen, rejected)]
        if any(len(own) > 1 for own in parts) or parts[0][0].tools != parts[1][0].tools:
            continue
        tools = [tool_to_wire(tool) for tool in parts[0][0].tools]
        both = [[_to_wire(message) for message in trajectory.messages] for trajectory in (chosen, rejected)]
        shared = next((n for n, (one, other) in enumerate(zip(*both, strict=False)) if one != other), None)
        if shared is None or both[0][shared]["role"] != "assistant" or both[1][shared]["role"] != "assistant":
            continue
        yield {
            "prompt": both[0][:shared],
            "chosen": both[0][shared:],
            "rejected": both[1][shared:],
            **({"tools": tools} if tools else {}),
            "task": group.task.id,
            "seat": seat,
            "rewards": [best, worst],
        }


EXPORT_PAGE_ROWS = 1000


def exported_rows(reader: RunReader, *, min_reward: float | None = None, stage: str = "") -> Iterator[RolloutRow]:
    """The rows of a stage (empty: all) with at least that reward (None: any), a page at a time."""
    last = 0
    where: dict[str, Any] = {} if min_reward is None else {"reward >=": min_reward}
    where |= {"stage": stage} if stage else {}
    while page := reader.rollouts({**where, "id >": last}, limit=EXPORT_PAGE_ROWS):
        yield from page
        last = page[-1].id


def training_rows(
    reader: RunReader, to: Literal["sft", "dpo"], *, min_reward: float | None = None, stage: str = ""
) -> Iterator[dict[str, Any]]:
    """A run as data to train on: a conversation per seat that learns (`sft`), or a pair per group and seat (`dpo`).

    `min_reward` is asked of each seat's own reward.
    """
    if to == "sft":
        for row in exported_rows(reader, stage=stage):
            yield from conversations(reader.get(row.id), min_reward=min_reward)
        return
    for name, step in reader.select("select distinct stage, step from rollouts order by stage, step"):
        if not stage or stage == name:
            for group in reader.iter_groups(name, step):
                yield from preferences(group, min_reward=min_reward)


PARQUET_BATCH_ROWS = 1000


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write the rows as a table; returns their number.

    They are the fields of `RolloutRow`, the `seat` whose reward that is, and `record`: JSON data.
    """
    with needs_extra("parquet"):
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    whole = ("id", "step", "group", "sample_index", "seed", "turns", "tokens_in", "tokens_out")
    text = ("stage", "env", "task", "status", "stop_reason", "seat", "record")
    columns = {name: pyarrow.int64() for name in whole} | {name: pyarrow.string() for name in text}
    columns |= {name: pyarrow.float64() for name in ("reward", "advantage", "seconds")}
    schema, waiting, count = pyarrow.schema(list(columns.items())), [], 0
    with ParquetWriter(path, schema) as writer:
        for row in rows:
            waiting.append({**row, "record": json.dumps(row["record"], default=str)})
            count += 1
            if len(waiting) == PARQUET_BATCH_ROWS:
                writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
                waiting.clear()
        writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
    return count
