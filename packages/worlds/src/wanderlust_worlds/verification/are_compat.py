"""The two upstream judges' ways, for scores that are to be compared with theirs: `are` and `gaia2_cli`.

After facebookresearch/meta-agents-research-environments (May 2026): `are/.../validation/judge.py` and `gaia2-cli/core/
gaia2_core/judge/judge.py`, described in words, written anew. Both go turn by turn, count first, then give each act the
first write that passes, without ever taking one back. They differ:

| | `are` | `gaia2_cli` |
|---|---|---|
| counts | events of the environment and the user too: one that never came rejects; not noise | the agent's alone |
| app | its class, so two apps of one class are one | its class |
| writes of earlier turns | may still be taken | may not |
| absolute times, comparators | are looked at | are not |
| text that only a judge could compare | undecided | accepted without a judge |

Both let one message to the user more than asked for pass in a turn, and equal texts are equal without accents and
punctuation. What they do with an oracle's empty text is ours for a left out one: it is not compared.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from wanderlust_worlds.engine.events import DISTRACTOR_MARK, PlannedCall, is_agent_call
from wanderlust_worlds.verification.matching import LogMatcher
from wanderlust_worlds.verification.oracle import ExpectedCall, plain_value
from wanderlust_worlds.verification.verdict import Compat, Decision, JudgeAnswer, JudgeQuestion, Reason, Verdict

MAX_EXTRA_MESSAGES = 1
"""Messages to the user beyond the oracle's that pass in each turn."""


def verify_like_are(matcher: LogMatcher, compat: Compat, answers: tuple[JudgeAnswer, ...]) -> Verdict:
    """The verdict as the upstream judge of that name would come to it. The first turn that fails ends it."""
    judge = _GreedyMatcher(matcher, compat)
    turns = max((act.turn for act in matcher.acts), default=-1) + 1
    for turn in range(turns):
        judge.reasons += judge.count_reasons(turn)
        if not judge.reasons:
            judge.match(turn)
        if judge.reasons:
            break
    return judge.verdict(answers)


class _GreedyMatcher:
    """Matches each act with the first write that passes, and never takes one back."""

    def __init__(self, matcher: LogMatcher, compat: Compat):
        self.matcher, self.compat = matcher, compat
        self.assignment: dict[int, int] = {}
        self.reasons: list[Reason] = []
        self.questions: list[JudgeQuestion] = []
        starts: dict[int, int] = {}  # a turn begins with its first event that is not the agent's
        for name, line in matcher.event_lines.items():
            turn = matcher.oracle.turn_of[name]
            if turn and not is_agent_call(matcher.oracle.events[name]):
                starts[turn] = min(starts.get(turn, line), line)
        self.turn_of = [sum(start <= line for start in starts.values()) for line in matcher.writes]
        """For each write, the turn that it was done in."""

    def _kind(self, app: str, action: str) -> str:
        return f"{self.matcher.oracle.kinds.get(app, app)}.{action}"

    # Counting

    def count_reasons(self, turn: int) -> Iterator[Reason]:
        """Yield the actions that happened more or less often than in the oracle."""
        case = self.matcher
        messages = {self._kind(a.act.app, a.act.action) for a in case.acts if a.action.ends_turn}
        wanted = Counter(self._kind(a.act.app, a.act.action) for a in case.acts if a.turn == turn)
        lines = [case.line(write) for write, at in enumerate(self.turn_of) if at == turn]
        done = Counter(self._kind(line.app, line.action) for line in lines)
        if self.compat == "are":
            planned = [event for event in case.oracle.events.values() if isinstance(event, PlannedCall)]
            others = [e for e in planned if e.by in ("env", "user") and DISTRACTOR_MARK not in e.id]
            others = [e for e in others if case.oracle.turn_of[e.id] == turn]
            wanted.update(event.id for event in others)
            done.update(event.id for event in others if event.id in case.event_lines)
        for name in sorted({*wanted, *done}):
            spare = MAX_EXTRA_MESSAGES if name in messages else 0
            if not wanted[name] <= done[name] <= wanted[name] + spare:
                text = f"turn {turn}: {name} happened {done[name]} times, expected {wanted[name]}"
                yield Reason(fault="count", text=text)

    # Matching

    def match(self, turn: int) -> None:
        """Give each act of a turn the first write that passes."""
        for number, act in enumerate(self.matcher.acts):
            if act.turn != turn:
                continue
            taken, kind = set(self.assignment.values()), self._kind(act.act.app, act.act.action)
            for write, at in enumerate(self.turn_of):
                line = self.matcher.line(write)
                in_turn = at == turn or (self.compat == "are" and at < turn)
                free = in_turn and write not in taken and self._kind(line.app, line.action) == kind
                if free and self._passes(act, write):
                    self.assignment[number] = write
                    break
            else:
                text = f"{act.act.id} ({act.act.app}.{act.act.action}): no write is like it"
                self.reasons.append(Reason(fault="missing", text=text, event=act.act.id))
                if self.compat == "are":
                    return

    def _passes(self, act: ExpectedCall, write: int) -> bool:
        if any(parent not in self.assignment or self.assignment[parent] > write for parent in act.parents):
            return False
        if not self._in_time(act, write):
            return False
        same = self.matcher.matches(act, write, self.assignment)
        if same is None and not self._equal_texts(act, write):
            self.questions.append(self.matcher.question(act, write, self.assignment))
        return same is not False

    def _in_time(self, act: ExpectedCall, write: int) -> bool:
        event = act.act
        if self.compat == "gaia2_cli":
            if event.delay <= self.matcher.oracle.window.over:
                return True
            window = self.matcher.oracle.window
            act = replace(act, act=replace(event, at=None), early=window.before, late=window.after)
        return self.matcher.in_time(act, write, self.assignment)

    def _equal_texts(self, act: ExpectedCall, write: int) -> bool:
        """Whether the soft arguments are equal but for accents and punctuation, or not wanted at all."""
        args: Mapping[str, object] = self.matcher.line(write).args
        unsure = self.matcher.differing(act, write, at=self.assignment, soft=True)
        return all(
            not one.wanted or _fold_letters(one.wanted) == _fold_letters(plain_value(args.get(one.name, one.default)))
            for one in unsure
        )

    def verdict(self, answers: tuple[JudgeAnswer, ...]) -> Verdict:
        """The verdict after all turns."""
        case, taken = self.matcher, set(self.assignment.values())
        question_of = {question.event: question for question in self.questions}
        open_now = tuple(
            q for name, q in question_of.items() if any(case.acts[n].act.id == name for n in self.assignment)
        )
        waiting = open_now and (self.compat == "are" or bool(answers))
        decision: Decision = "reject" if self.reasons else "undecided" if waiting else "accept"
        waits = [Reason(fault="judge", text=f"{q.event}: is it the same?", event=q.event) for q in open_now]
        return Verdict(
            decision=decision,
            matched={case.acts[n].act.id: case.writes[write] for n, write in sorted(self.assignment.items())},
            missing=tuple(one.act.id for n, one in enumerate(case.acts) if n not in self.assignment),
            extra=tuple(line for number, line in enumerate(case.writes) if number not in taken),
            reasons=(*self.reasons, *(waits if decision == "undecided" else ())),
            questions=open_now,
            answers=answers,
            marks=case.marks,
            compat=self.compat,
        )


def _fold_letters(value: object) -> str:
    plain_text = unicodedata.normalize("NFKD", str(value)).casefold()
    return "".join(letter for letter in plain_text if letter.isalnum())
