"""Errors, and text from outside made safe to show. A failed rollout is data: its failure names what failed.

All errors and warnings of the core (a test holds this list; indented ones are subclasses):

    Exception
        WanderlustError                 everything that is raised on purpose
            UsageError                  asked for something that cannot be; exit code 2
                FilterError             an expression that filters rollouts
                EnvironmentUnavailable  the studio cannot make a run's environment
            StoreError                  a run store or checkpoint: missing, foreign, corrupt, or locked
                NotSerializable         a rollout that is not plain data
                DamagedState            a saved state whose checksum is not that of its bytes
            StopEpisode                 a limit or a forfeit; no failure
                ContextFull             the conversation no longer fits the model
            Failure                     recorded in the rollout
                PolicyFailure           the model, its endpoint, or the form of its answer
                    PolicyRefused       a server that refuses every request; ends the run
                EnvironmentFailure      the environment's own code
                    ProgramNotStarted   an agent's program that could not be started
                    ProgramCrashed      an agent's program that ended with an error
                    ProgramSilent       an agent's program that never asked the model
                ToolFailure             the machinery behind a tool
                RubricFailure           a reward function or a judge
                    NoVerdict           a judge whose answers cannot be parsed
                        JudgeRefusal    a judge that declined to answer
                NoReply                 a worker that did not answer: too late, too much, or it died
                SandboxFailure          a sandbox that does not start, or died
                WorkerFailure           the worker that played was lost
                TrainerFailure          a training service
            ToolError                   a tool's answer to the model: what was asked cannot be done
                WrongArguments          the arguments do not fit the schema
            EgressRefused               the proxy of a sandbox: a server that is not on its list
            NonFiniteUpdate             losses or gradients were no finite numbers
            SamplerGapError             sampler and trainer disagree about probabilities
            RewardHackingDetected       a monitor warned, and the run was to stop then
            OutOfMemory                 a gradient that does not fit into memory
            WorkerError                 a process of a trainer died or raised
            NotFound                    HTTP 404 of the studio
        BlockedLoop                     raised inside code that holds the event loop for too long
        ProbeDoesNotFit                 a probe that this environment has no use for
        _BatchLost                      a batch of requests that gives no answers
        _BatchRefused                   an HTTP status in the place of a batch
        ValueError
            LiteralParseError           text that is no list of calls with literal arguments
        Warning
            UserWarning
                NoSignalWarning         a training step that had nothing to learn from
                UnscoredRolloutsWarning rollouts without a reward
                WorkerRestartWarning    workers that were lost; what they did is done again
                MemoryWarning           a run that may not fit into memory with its activations and caches
                SmallerBatchesWarning   gradients are computed in smaller pieces from now on
                LoggerWarning           metrics that did not get to another service
                NoUsefulTasksWarning    a curriculum whose tasks are all too hard or too easy
                SamplerGapWarning       the same, where rounding or older weights may be the cause
                RecomputedContextWarning a model that is sampled without a cache, which is slow
                PrefixWarning           a chat template that rewrites earlier turns
                ToolsWarning            a chat template, or an answer, whose form of tool calls is unknown
                SlowPrecision           a precision that this device is slow at
                FastLlamaMismatchWarning our own forward pass disagrees, so that of transformers is used
                NotIsolatedWarning      commands that run without isolation
    BaseException
        CellTimeout                     raised in a cell of a Python session when its time is up
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches


class WanderlustError(Exception):
    """Base of everything this library raises on purpose."""

    transient: bool = False
    """True when the same call may well succeed if tried again (a lost connection, a busy server)."""
    refusal: str = ""
    """`HTTP 401` and the like where a server refused the request itself, so that asking again is no use."""


class UsageError(WanderlustError):
    """The caller asked for something that cannot be: one line says what is wrong, where, and what to do."""


class StoreError(WanderlustError):
    """A run store or checkpoint is missing, foreign, corrupt or held by another writer."""


class NotSerializable(StoreError):
    """A rollout holds something that is not plain data, and so cannot be stored."""


CONTEXT_STOP = "context"
"""Stop reason of an episode whose conversation no longer fits the model."""


class StopEpisode(WanderlustError):
    """Ends an episode early and on purpose (a limit, a forfeit); not a failure."""

    @property
    def reason(self) -> str:
        """The episode's stop reason."""
        return str(self)


class ContextFull(StopEpisode):
    """The conversation no longer fits the model's context: ends the episode with the stop reason `context`."""

    @property
    def reason(self) -> str:
        """The episode's stop reason."""
        return CONTEXT_STOP


class Failure(WanderlustError):
    """Base of the failures that a rollout records; the class names the wall."""

    def __init__(self, message: str = "", *, transient: bool = False, refusal: str = "", output: str = ""):
        super().__init__(message)
        self.transient = transient
        self.refusal = refusal
        self.output = output
        """What the program behind it wrote; its last lines are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """Where a rollout failed, for people.

    Example:
        >>> FailureDetails(place="game.py:12 in run", advice="mend the environment there").place
        'game.py:12 in run'
    """

    place: str = ""
    """Innermost line of the user's own files; empty where the failure came through none of them."""
    traceback: str = ""
    """The frames in those files, outermost first."""
    output: str = ""
    """The last lines that the program behind the failure wrote."""
    advice: str = ""
    """What to do."""


class PolicyFailure(Failure):
    """The model, its endpoint or its answer's shape failed."""


class PolicyRefused(PolicyFailure):
    """A server refuses every request (a wrong key, an unknown model): ends the run, which keeps what has finished."""


BLOCKED = "blocked: "
"""Beginning of a failure's `refusal` where a provider blocked one conversation; it says nothing of others."""
CONTENT_FILTER = "content_filter"
"""Finish of an answer that the server's filter kept back, and code of an error where it did so with the prompt."""
MAX_BLOCKED_CHARS = 4_000
"""Characters of a blocked answer's text that its failure tells."""


def answer_blocked(reason: str, *, what: str = "answer", text: str = "") -> PolicyFailure:
    """The failure where a provider kept a prompt or an answer back; `text` is what came of the answer."""
    why = one_line(reason)
    came = f", of which came {quoted(text, MAX_BLOCKED_CHARS)}" if text else ""
    return PolicyFailure(f"the provider blocked the {what}: {why}{came}", refusal=BLOCKED + why)


class EnvironmentFailure(Failure):
    """The environment's own code raised."""


class ToolFailure(Failure):
    """The machinery behind a tool failed (a tool's own error is text for the model, not this)."""


class RubricFailure(Failure):
    """A reward function or a judge raised."""


class SandboxFailure(Failure):
    """The sandbox could not be started or died."""


class WorkerFailure(Failure):
    """The worker that played was lost, again and again, or nobody is left to play."""


class WorkerRestartWarning(UserWarning):
    """Workers were lost; their work is done again by others, or by those that take their place."""


class ToolsWarning(UserWarning):
    """Tool calls in an unknown form: of a chat template, whose model is asked for them as text, or of an answer."""


@contextmanager
def boundary(failure: type[Failure]) -> Iterator[None]:
    """Guarantees that only `WanderlustError` leaves the block: anything else is attributed to `failure`.

    Cancellation and interpreter exits pass through, being no `Exception`.
    """
    try:
        yield
    except WanderlustError:
        raise
    except Exception as error:
        raise failure(f"{type(error).__name__}: {error}") from error


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Guarantees that what the block cannot write is a StoreError in one line: the path and the system's reason."""
    try:
        with boundary(Failure):
            yield
    except Failure as failure:
        if type(failure) is not Failure:
            raise
        raise unwritten(path, failure) from failure


def unwritten(path: object, error: BaseException) -> StoreError:
    """The error of what could not be written.

    Libraries that write tensors say of a full disk only that a position is wrong; the reason is what they met before.
    """
    reason, met = str(error), error.__cause__ or error.__context__
    while met is not None:
        if isinstance(met, OSError) and met.strerror:
            reason = met.strerror
        met = met.__cause__ or met.__context__
    return StoreError(f"{path} cannot be written: {one_line(reason)}")


_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls but newline and tab, what reorders or breaks lines unseen, and lone surrogates."""


def printable(text: str) -> str:
    """`text` with every character escaped that could steer a terminal; newlines and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


_LINE_ESCAPES = str.maketrans({"\n": "\\n", "\t": "\\t"})


def one_line(text: str, limit: int = 200) -> str:
    """`printable` text with line ends and tabs as `\\n` and `\\t`, at most `limit` characters, cut with an ellipsis."""
    line = printable(text[: limit + 1]).translate(_LINE_ESCAPES)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str, limit: int = 60) -> str:
    """`repr` of the first `limit` characters; an ellipsis behind it says that there are more."""
    return repr(text[:limit]) + "…" * (len(text) > limit)


def nearest_names(name: str, valid_names: list[str], *, kind: str) -> str:
    """The end of an error line: the valid names nearest to `name`, or all when they are few, or that there are none."""
    close = get_close_matches(name, valid_names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if not valid_names:
        return f"there are no {kind} here"
    return f"{kind}: {', '.join(valid_names[:8])}" + (", ..." if len(valid_names) > 8 else "")
