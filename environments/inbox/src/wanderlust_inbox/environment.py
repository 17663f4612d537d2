"""The mail agent's environment: questions over inboxes of thousands of mails, with tools to search and to read.

Tools and bounds are those of ART-E (OpenPipe ART, examples/art-e): a search lists at most ten mails, the newest first,
with a snippet each; the last tool gives the answer and the mails that it follows from; there are ten turns. Only the
first call of a message is made, and a faulty one ends the episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any, ClassVar

from wanderlust.environment import Episode, Limits
from wanderlust.errors import UsageError, nearest_names, one_line
from wanderlust.policies.scripted import PerRolloutPolicy, RolloutKey, Scripted
from wanderlust.tools.function import FunctionTool, ToolError
from wanderlust.tools.tool_calls import CallOutcome, call_tools
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Message, Policy, Task, Tool, ToolCall, assistant, system, user
from wanderlust_inbox.corpus import MAX_MAILS, MIN_MAILS, InboxPlan
from wanderlust_inbox.generated import generated_inbox, stored_questions
from wanderlust_inbox.language import bare_answer
from wanderlust_inbox.players import READERS, reader_policy
from wanderlust_inbox.questions import InboxQuestion
from wanderlust_inbox.rewards import RECORD_KEY, EpisodeRecord, inbox_rubric
from wanderlust_inbox.store import Hit, InboxFile

MAX_TURNS = 10
MAX_READ_CHARS = 4000
"""Characters of a mail that one call shows."""
UNKNOWN = "I don't know"
UNKNOWN_ANSWERS = frozenset({"i don t know", "i do not know", "unknown", "not known", ""})
"""Answers that count as none, as words."""
INBOX_RULES = """You answer questions about the inbox of {owner}. Today is {today}.
Search for mails, read them, and give the answer with return_final_answer: as few words as possible, and the ids of the
mails that it follows from. A later mail may correct an earlier one. If no mail has the answer, answer "I don't know":
a wrong answer is worse. You have {turns} turns, and each is one call of a tool."""
TODAY = "2027-01-01"
SPLITS: Mapping[str, Mapping[str, str]] = {
    "train": {"people": "train", "wordings": "train"},
    "eval": {"people": "held", "wordings": "train"},
    "eval-wordings": {"people": "held", "wordings": "held"},
    "eval-kinds": {"people": "held", "wordings": "train"},
}
"""What the inboxes of a split are made of; `eval-kinds` has the same inboxes as `eval`, and other questions."""
HELD_OUT_SEED = 1000
"""Seeds of inboxes from here on are for evaluation."""


class InboxSession:
    """What one episode does with one inbox, and what its record says of that."""

    def __init__(self, inbox: InboxFile, task: Task, episode: Episode):
        self.inbox, self.task = inbox, task
        self.record = EpisodeRecord(max_turns=MAX_TURNS)
        self.state = episode.state
        self.state.update(found=[], read=[], answer=None, sources=[])
        self.over = False
        self.note()

    def note(self) -> None:
        """Leave the record in the episode's state."""
        self.state[RECORD_KEY] = self.record.as_state()

    def search(self, keywords: Sequence[str], *, limit: int, **filters: Any) -> list[Hit]:
        """As of InboxFile."""
        return self.shown(self.inbox.search(keywords, limit=limit, **filters))

    def shown(self, hits: list[Hit]) -> list[Hit]:
        """Note these hits as found."""
        self.state["found"] += [hit.id for hit in hits]
        self.record.found |= any(hit.id in self.task.answer["sources"] for hit in hits)
        return hits

    def read(self, mail_id: str) -> Any:
        """The mail, or None, which is noted as an invalid id."""
        mail = self.inbox.read(mail_id)
        if mail is None:
            self.record.invalid_id = True
        else:
            self.state["read"].append(mail.id)
            right = set(self.task.answer["sources"])
            self.record.read |= mail.id in right
            self.record.sources_read = len(right.intersection(self.state["read"])) / max(len(right), 1)
        return mail

    def answer(self, text: str, sources: Sequence[str]) -> None:
        """Take the final answer."""
        wanted = self.task.answer
        given, right = bare_answer(text), [bare_answer(one) for one in wanted["answers"]]
        self.state.update(answer=one_line(text, 500), sources=[one_line(one, 100) for one in sources[:50]])
        self.record.abstained = given in UNKNOWN_ANSWERS and bool(given or not text.strip())
        self.record.answered = not self.record.abstained
        self.record.right = given in right if right else self.record.abstained
        self.record.source_count = len(sources)
        self.record.sources_right = bool(sources) and set(sources) == set(wanted["sources"])
        self.over = True


class InboxTools:
    """The agent's tools in one session."""

    def __init__(self, session: InboxSession):
        self.session = session

    def search_emails(
        self,
        keywords: list[str],
        *,
        from_addr: str = "",
        to_addr: str = "",
        sent_after: str = "",
        sent_before: str = "",
        max_results: int = 10,
    ) -> list[dict[str, str]]:
        """Find mails that have all keywords in their subject, text or attachments' names, the newest first.

        Args:
            keywords: Words; another word for the same thing is not found.
            from_addr: Only mails from this person: a name or address, or a part of it.
            to_addr: Only mails to this person.
            sent_after: Only mails from this day on, as YYYY-MM-DD.
            sent_before: Only mails before this day, as YYYY-MM-DD.
            max_results: At most this many, and never more than ten.
        """
        try:
            hits = self.session.search(
                keywords, limit=max_results, sender=from_addr, recipient=to_addr, after=sent_after, before=sent_before
            )
        except UsageError as error:
            raise ToolError(str(error)) from error
        name = self.session.inbox.name_of
        return [
            {"id": h.id, "date": h.date[:10], "from": name(h.sender), "subject": h.subject, "snippet": h.snippet}
            for h in hits
        ]

    def read_email(self, message_id: str, quoted: bool = False, page: int = 1) -> dict[str, Any]:
        """Read a mail.

        Args:
            message_id: As a search gave it.
            quoted: Also the mails that it quotes.
            page: Of a long mail, which page; the first is 1.
        """
        mail = self.session.read(message_id)
        if mail is None:
            return {"error": f"there is no mail {one_line(message_id, 100)!r}"}
        text = mail.body if quoted else mail.new_text
        pages = max(1, -(-len(text) // MAX_READ_CHARS))
        start = (min(max(page, 1), pages) - 1) * MAX_READ_CHARS
        name = self.session.inbox.name_of
        return {
            "date": mail.date,
            "from": f"{name(mail.sender)} <{mail.sender}>",
            "to": [name(one) for one in mail.recipients],
            "cc": [name(one) for one in mail.cc],
            "subject": mail.subject,
            "attachments": list(mail.attachments),
            "text": text[start : start + MAX_READ_CHARS],
            "pages": pages,
        }

    def return_final_answer(self, answer: str, sources: list[str]) -> str:
        """Give the answer, which ends the work.

        Args:
            answer: As few words as possible, or: I don't know.
            sources: Ids of the mails that it follows from.
        """
        self.session.answer(answer, sources)
        return "done"


class Inbox(ToolEnvironment):
    """Questions over generated inboxes: search, read, and answer with sources, or say that no mail has the answer.

    Splits: `train`; `eval`, inboxes of people and places that training never has; `eval-wordings`, whose sentences are
    held out as well; `eval-kinds`, whose kinds of questions are held out. Answers are compared as words and numbers,
    without articles and prepositions.
    """

    group_by = "kind"
    splits: ClassVar[tuple[str, ...]] = tuple(SPLITS)
    limits = Limits(max_turns=MAX_TURNS)
    graded_arguments = frozenset({"answer", "sources"})

    def __init__(
        self,
        *,
        inboxes: int = 8,
        eval_inboxes: int = 4,
        mails: int = 5000,
        reward: str = "correct",
        turns: float = 0.0,
        hallucination: float = 0.0,
        sources: float = 0.0,
        judge: Policy | str | None = None,
        judge_model: str | None = None,
    ):
        """`inboxes` of training and `eval_inboxes`, of so many `mails`; the others are of `inbox_rubric`."""
        if inboxes < 1 or eval_inboxes < 1:
            raise UsageError(f"inboxes and eval_inboxes are at least 1, not {inboxes} and {eval_inboxes}")
        if not MIN_MAILS <= mails <= MAX_MAILS:
            raise UsageError(f"mails is from {MIN_MAILS} to {MAX_MAILS}, not {mails}")
        self.inboxes, self.eval_inboxes, self.mails = inboxes, eval_inboxes, mails
        weights = {"turns": turns, "hallucination": hallucination, "sources": sources}
        rubric = inbox_rubric(reward, **weights, judge=judge, judge_model=judge_model)
        super().__init__(rubric=rubric)
        self._files: dict[str, InboxFile] = {}
        self._tasks_of: dict[str, list[Task]] = {}
        self.players = {name: partial(self.reader, name) for name in READERS}

    def tasks(self, split: str = "train") -> list[Task]:
        """The questions of a split, inbox by inbox in turn. Raises UsageError for a split that there is not."""
        if split not in SPLITS:
            raise UsageError(f"there is no split {split!r}: {nearest_names(split, [*SPLITS], kind='splits')}")
        if split not in self._tasks_of:
            rows = [self._tasks_in(split, plan) for plan in self.plans(split)]
            mixed = chain.from_iterable(zip_longest(*rows))
            self._tasks_of[split] = [task for task in mixed if task is not None]
        return self._tasks_of[split]

    def plans(self, split: str) -> list[InboxPlan]:
        """The plans of a split's inboxes."""
        count = self.inboxes if split == "train" else self.eval_inboxes
        first = 0 if split == "train" else HELD_OUT_SEED
        parts: Any = SPLITS[split]
        return [InboxPlan(seed=first + number, mails=self.mails, **parts) for number in range(count)]

    def inbox(self, name: str) -> InboxFile:
        """The open file of a plan's name."""
        if name not in self._files:
            people, wordings, mails, seed = name.split("-")
            plan: Any = {"people": people, "wordings": wordings}
            self._files[name] = InboxFile(generated_inbox(InboxPlan(seed=int(seed), mails=int(mails), **plan)))
        return self._files[name]

    def question_prompt(self, inbox: InboxFile, question: InboxQuestion) -> tuple[Message, ...]:
        """What the agent is shown first."""
        owner = f"{inbox.name_of(inbox.owner)} <{inbox.owner}>"
        return system(INBOX_RULES.format(owner=owner, today=TODAY, turns=MAX_TURNS)), user(question.text)

    def oracle(self, task: Task) -> Policy:
        """Knows the answer and its sources."""
        answer = next(iter(task.answer["answers"]), UNKNOWN)
        call = _call("return_final_answer", answer=answer, sources=task.answer["sources"])
        return Scripted([call])

    def reader(self, name: str) -> Policy:
        """The scripted reader of that name, who answers in one turn."""
        read = reader_policy(self, name)
        tasks = {task.id: task for split in self.splits for task in self.tasks(split)}

        def answer(place: RolloutKey) -> Policy:
            task = tasks[place.task]
            given = read(self.inbox(task.info["inbox"]), task.info["question"])
            return Scripted([_call("return_final_answer", answer=given.answer or UNKNOWN, sources=list(given.sources))])

        return PerRolloutPolicy(answer)

    async def run(self, episode: Episode) -> None:
        """One question."""
        session = InboxSession(self.inbox(episode.task.info["inbox"]), episode.task, episode)
        tools = InboxTools(session)
        episode.state["tool_calls"] = {}
        offered = [FunctionTool(one) for one in (tools.search_emails, tools.read_email, tools.return_final_answer)]
        episode.state["session"] = session
        try:
            await self.converse(episode, offered)
        finally:
            session.record.turns = len(episode.agent.trajectory.turns) + (not session.over)
            session.note()
            del episode.state["session"]

    async def _reply(
        self, answer: Message, messages: Sequence[Message], *, episode: Episode, tools: Sequence[Tool]
    ) -> Sequence[Message] | None:
        session: InboxSession = episode.state["session"]
        if not answer.tool_calls:
            session.record.invalid_arguments = True
            return None
        (called,) = await call_tools(answer.tool_calls[:1], tools, self.call_limits)
        outcome = called.outcome
        session.record.unknown_tool |= outcome is CallOutcome.UNKNOWN_TOOL
        session.record.unparseable |= outcome in (CallOutcome.INVALID_JSON, CallOutcome.MALFORMED)
        session.record.invalid_arguments |= outcome in (CallOutcome.WRONG_ARGUMENTS, CallOutcome.TOOL_ERROR)
        if session.over or outcome is not CallOutcome.DONE:
            return None
        return [called.message]

    def _tasks_in(self, split: str, plan: InboxPlan) -> list[Task]:
        inbox = self.inbox(plan.name)
        asked = stored_questions(inbox, held_out_kinds=split == "eval-kinds")
        return [
            Task(
                id=f"{split}-{plan.seed}-{question.id}",
                prompt=self.question_prompt(inbox, question),
                answer={"answers": accepted_answers(question.answer), "sources": list(question.sources)},
                info={"inbox": plan.name, "kind": question.kind, "question": question.text},
            )
            for question in asked
        ]


def accepted_answers(answer: str) -> list[str]:
    """The forms in which an answer is taken: a person's last name will do, as no two have the same. None for none."""
    is_person = re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", answer)
    return [answer, answer.rpartition(" ")[2]] if is_person else [answer] if answer else []


def _call(name: str, **arguments: Any) -> Message:
    return assistant("", ToolCall(id="call_1", name=name, arguments=json.dumps(arguments)))
