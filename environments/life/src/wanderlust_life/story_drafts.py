"""Stories drafted by a language model: each is checked as every family is, played by solvers, and kept for review.

A folder of drafts has the stories (`NAME.json`), what became of each (`drafts.jsonl`), the model's answers
(`answers.db`, with which the same call repeats without the model) and what people decided (`reviews.jsonl`).
`life,families=FOLDER` plays those that were accepted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure, UsageError, boundary, one_line
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.answer_cache import AnswerCache, CachedPolicy
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.runner.terminal import Table
from wanderlust.store.whole_files import write_whole
from wanderlust.types import Message, Policy, assistant, system, user
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.described import SLOT, Story, StoryError, check_story, read_story, story_family
from wanderlust_life.drafts import DRAFTS_FILE, StoryDraft, drafts_in
from wanderlust_life.families.family import LEVELS, Capability, Family, all_families

CAPABILITIES: tuple[Capability, ...] = ("execution", "search", "adaptability", "time", "ambiguity")
"""What drafts are asked for, in turn."""
STATES = ("ready", "easy", "failed")
REPAIRS = 2
"""Times that the writer is told what is wrong with a draft."""
TASKS_OF_A_SOLVER = 6
"""Tasks of a draft that each solver plays: both splits' first seeds at every level."""
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
INSTRUCTIONS = """\
You write stories for a test of assistants. An assistant has the apps of a person and is asked to do something;
people answer, plans change, time passes. Answer with one JSON object and nothing else.

Fields: name (small letters and hyphens); capability; asks, hard (one sentence each); people (role: tie, one of
friend, colleague, neighbour, partner); words (name: a list of words, or things, topics, foods, hobbies); numbers
(name: [least, most]); days (name: [from, to], days from now; a free hour); before (what stands in the apps:
{"mail": role, "subject", "text", "days_ago"}, {"chat": role, "text"}, {"message": role, "text"}, {"event": title,
"at": day, "with": [roles], "place"}, {"file": path, "text"}); decoys (the same, for what looks right and is
wrong; its role is "other"); request (what the user asks); then (the steps).

A step: id; by (agent: what a perfect assistant does; env: what others do; user); app, action, args; or report
(what the assistant tells the user at the end of a turn; "asks": true for a question); or text (by the user).
after (ids of steps, else the one before); delay in seconds; says: for each text that the assistant writes, the
facts that it must state: {"content": [["yes", "agrees"], {"day": "first"}, {"person": "who"}]}; of a report only
the list. A list of words is one fact in several wordings; write one that the text itself has. "asks": true where
the text is a question.

In texts {who} is a full name; {who.first}, {who.email}, {who.phone}, {who.chat} (the id in Chats), {first.day},
{first.time}, {first.start}, {first.end} stand for what was drawn. An argument "{id}" is the result of that step.
Draw whatever can vary. Everything that the assistant must know stands in the request, in the apps or in what
others say.
"""
EXAMPLE_STORY = """\
{"name": "bring-back", "capability": "adaptability",
 "asks": "Ask a friend for something back, and tell somebody when.", "hard": "The friend names another day.",
 "people": {"who": "friend", "boss": "colleague"}, "words": {"thing": "things"},
 "days": {"first": [1, 3], "second": [4, 7]},
 "request": "Ask {who} in Chats whether I can have the {thing} back on {first.day}. Then mail {boss} when I have it.",
 "then": [
  {"id": "asked", "app": "Chats", "action": "send_message", "asks": true,
   "args": {"user_id": "{who.chat}", "content": "Hi {who.first}, can I have the {thing} back on {first.day}?"},
   "says": {"content": [["{thing}"], {"day": "first"}]}},
  {"id": "answer", "by": "env", "app": "Chats", "action": "create_and_add_message", "delay": 90,
   "args": {"conversation_id": "{asked}", "sender_id": "{who.chat}", "content": "Not then, but on {second.day}."}},
  {"app": "Emails", "action": "send_email",
   "args": {"recipients": ["{boss.email}"], "subject": "The {thing}", "content": "I have it on {second.day}."},
   "says": {"subject": [], "content": [{"day": "second"}]}},
  {"report": "{boss.first} knows: you have it on {second.day}.", "says": [{"day": "second"}]}]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStories:
    """What became of all drafts of a folder."""

    folder: Path
    drafts: Sequence[StoryDraft]
    counts: Mapping[str, int] = field(default_factory=dict)

    def table(self) -> Table:
        """One row for each draft."""
        table = Table("draft", "state", "capability", "asks", "solved", "why")
        for one in self.drafts:
            solved = ", ".join(f"{name} {done}/{of}" for name, (done, of) in one.solved.items())
            cells = (one.name, one.state, one.capability, one.asks, solved, one.reason)
            table.add_row(*(one_line(cell, 120) for cell in cells))
        return table

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"folder": str(self.folder), "counts": dict(self.counts), "drafts": msgspec.to_builtins(self.drafts)}


@suspended_loop()
def write_stories(
    policy: str | Policy,
    *,
    out: Path,
    count: int = 5,
    about: str = "",
    solvers: Sequence[str | Policy] = ("greedy",),
    solved_at_most: float = 0.9,
    options: PolicyOptions = PolicyOptions(),  # noqa: B008 (frozen)
    progress: Logger | bool = True,
) -> WrittenStories:
    """Have `policy` draft stories until the folder has `count`; each is checked, played by the solvers and kept.

    A draft is `ready` for review when it keeps what every family does and no solver passes more than `solved_at_most`
    of its tasks; else it is `failed` or `easy`, with the reason. `about` is what the stories shall be about. The same
    call goes on where it was stopped, and repeats with the answers of the folder. Raises UsageError for other drafts
    in `out`, and PolicyFailure where the writer cannot be asked; what was drafted before is kept.
    """
    if count < 1:
        raise UsageError(f"count is {count}, expected at least 1")
    env = AssistantLife()
    asked = resolve_policy(policy, env, options).policy if isinstance(policy, str) else policy
    writer, drafts = CachedPolicy(asked, AnswerCache(out)), drafts_in(out)
    with open_progress(progress) as logger:
        for number in range(len(drafts), count):
            logger.log_step("draft", number, of=count, metrics=_counts(drafts))
            draft, text = asyncio.run(_drafted(writer, number, drafts, about=about, seed=options.seed))
            if text:
                draft = _solved(draft, read_story(text), solvers, at_most=solved_at_most, options=options)
                write_whole(out / f"{draft.name}.json", text)
            drafts.append(draft)
            with (out / DRAFTS_FILE).open("a", encoding="utf-8") as file:
                file.write(msgspec.json.encode(draft).decode() + "\n")
        logger.log_step("draft", len(drafts), of=count, metrics=_counts(drafts))
    return WrittenStories(folder=out, drafts=drafts, counts=_counts(drafts))


def _counts(drafts: Sequence[StoryDraft]) -> dict[str, int]:
    return {state: sum(one.state == state for one in drafts) for state in STATES}


async def _drafted(
    writer: Policy, number: int, earlier: Sequence[StoryDraft], *, about: str, seed: int
) -> tuple[StoryDraft, str]:
    """The next draft and its text; no text where it failed."""
    capability = CAPABILITIES[number % len(CAPABILITIES)]
    wish = f" It is about {about}." if about else ""
    others = ", ".join(sorted({*all_families(), *(one.name for one in earlier)}))
    talk: list[Message] = [
        system(f"{INSTRUCTIONS}\nApps and actions:\n{describe_actions()}\n\nAn example:\n{EXAMPLE_STORY}"),
        user(f"Write a story for the capability {capability}.{wish} It is none of these: {others}."),
    ]
    reason = ""
    for attempt in range(REPAIRS + 1):
        with boundary(PolicyFailure):
            answer = (await writer.complete(talk, key=f"draft/{seed}/{number}/{attempt}")).message.content
        try:
            story = _checked(answer, earlier)
        except StoryError as error:
            reason = one_line(str(error), 500)
            talk += [assistant(answer), user(f"This cannot be used: {reason}. Write the whole object again.")]
            continue
        draft = StoryDraft(
            name=story.name, state="ready", capability=story.capability, asks=story.asks, attempts=attempt + 1
        )
        return draft, json.dumps(msgspec.to_builtins(story), indent=1, ensure_ascii=False) + "\n"
    failed = StoryDraft(
        name=f"draft-{number}", state="failed", capability=capability, reason=reason, attempts=REPAIRS + 1
    )
    return failed, ""


def _checked(answer: str, earlier: Sequence[StoryDraft]) -> Story:
    fenced = FENCED.search(answer)
    begin, end = answer.find("{"), answer.rfind("}")
    if fenced is None and not 0 <= begin < end:
        raise StoryError("there is no JSON object in the answer")
    story = read_story(fenced[1] if fenced else answer[begin : end + 1])
    if story.name in {*all_families(), *(one.name for one in earlier)}:
        raise StoryError(f"another family is called {story.name}")
    check_story(story)
    if said := answer_in_request(story):
        raise StoryError(f"the request says already what is to be found out: {said!r}")
    return story


def answer_in_request(story: Story) -> str:
    """A fact of the last report that stands word for word in the request of a search; empty where there is none."""
    reports = [step for step in story.then if step.report]
    if story.capability != "search" or not reports or not isinstance(reports[-1].says, list):
        return ""
    ways = [way for fact in reports[-1].says for way in (fact if isinstance(fact, list) else fact.ways)]
    return next((way for way in ways if SLOT.sub("", way).strip() and way.lower() in story.request.lower()), "")


def _solved(
    draft: StoryDraft, story: Story, solvers: Sequence[str | Policy], *, at_most: float, options: PolicyOptions
) -> StoryDraft:
    """The draft with what each solver passed; `easy` where one passed too much."""
    one = story_family(story)
    env = DraftEnvironment(one)
    solved: dict[str, tuple[int, int]] = {}
    for number, named in enumerate(solvers):
        name = named if isinstance(named, str) else f"solver {number + 1}"
        policy = resolve_policy(named, env, options).policy if isinstance(named, str) else named
        report = evaluate_sync(env, policy, n=TASKS_OF_A_SOLVER, progress=False)
        passed = round(report.reward.value * report.scored) if report.reward is not None else 0
        solved[name] = (passed, report.scored)
    easy = [name for name, (passed, of) in solved.items() if of and passed > at_most * of]
    if easy:
        reason = f"{easy[0]} passes more than {at_most:.0%} of its tasks"
        return msgspec.structs.replace(draft, solved=solved, state="easy", reason=reason)
    return msgspec.structs.replace(draft, solved=solved)


class DraftEnvironment(AssistantLife):
    """A life with one family, which need not be installed."""

    def __init__(self, one: Family):
        super().__init__()
        self.families = (one,)


def describe_actions() -> str:
    """The apps' actions and their arguments: those of the agent, and of others."""
    apps = next(iter(all_families().values())).scenario(0, LEVELS[1]).apps
    lines = []
    for app in apps:
        for by in ("agent", "env"):
            names = [
                f"{action.name}({', '.join(action.tool.schema['properties'])})"
                for action in app.actions.values()
                if by in action.scopes and (action.writes or by == "env")
            ]
            lines += [f"{app.name}, by {by}: {', '.join(names)}"] if names else []
    return "\n".join(lines)
