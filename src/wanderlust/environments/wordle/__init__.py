"""Wordle: six guesses at a five-letter word, rewarded as in classic `verifiers` (until 0.3.1).

That environment is TextArena's Wordle-v0 (0.7.4) with four rewards: a guess stands in <guess> tags, and in brackets
inside them to be counted as correct; an answer without the tags repeats the guess before it; two refused guesses in a
row end the game; partial credit is for the last guess whose marks were told, so never for the sixth. A transcript earns
what it earns there, as far as both know the same words. Sentences are our own.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from wanderlust.core.contracts import Environment, Episode, Limits
from wanderlust.core.messages import Message, system, user
from wanderlust.core.types import Task, Trajectory
from wanderlust.rubrics.part import Part
from wanderlust.rubrics.rubric import Rubric

GUESSES = 6
ANSWERS, OTHERS = ([*part.split()] for part in (files(__name__) / "words.txt").read_text("ascii").split("\n\n"))
"""Secrets in alphabetical order, and words that may only be guessed; their licence is beside them."""
RULES = """Find a secret word of five letters in six guesses. Each letter of a guess is marked: G (right), Y (elsewhere
in the word) or X (not in it, or not again). Think first if you like, then end with a guess: <guess>[crane]</guess>"""
SHOWN = "{}\n{}\nYou have {} guesses left."


def marks(guess: str, secret: str) -> str:
    """G, Y or X for each letter; a letter earns no more marks than the secret has of it, G before Y."""
    pairs = [*zip(guess, secret, strict=True)]
    missed, spare = ["" if g == s else g for g, s in pairs], [s for g, s in pairs if g != s]
    yellow = [g != s and missed[:n].count(g) < spare.count(g) for n, (g, s) in enumerate(pairs)]
    return "".join("G" if g == s else "XY"[y] for (g, s), y in zip(pairs, yellow, strict=True))


def tagged(text: str) -> list[str]:
    """What stands in guess tags. Takes time linear in the text, whatever it is."""
    return [g.strip() for g in re.findall("<guess>(.*?)</guess>", text[: text.rfind("</guess>") + 8], re.DOTALL)]


def latest(messages: Sequence[Message]) -> str:
    """The first guess of the last message that has one."""
    said = (tagged(m.content) for m in reversed(messages) if m.role == "assistant")
    return next((found[0] for found in said if found), "None")


def correct(trajectory: Trajectory, task: Task) -> float:
    """1 when the latest guess is the word, in brackets."""
    return float(latest(trajectory.messages[len(task.prompt) :]) == f"[{task.answer}]")


def partial(state: Mapping[str, list[str]], trajectory: Trajectory, task: Task) -> float:
    """0.2 for each G and 0.1 for each Y that was told last, when the word was not found."""
    told = [m for m in state["marks"][: GUESSES - 1] if m != "GGGGG" and not correct(trajectory, task)]
    return float(sum(0.2 * m.count("G") + 0.1 * m.count("Y") for m in told[-1:]))


def brevity(trajectory: Trajectory, task: Task) -> float:
    """1 over the number of answers with a guess on one line, when the word was found."""
    count = sum(any(map(tagged, turn.action.content.split("\n"))) for turn in trajectory.turns)
    return correct(trajectory, task) / (count or 1)


def form(trajectory: Trajectory) -> float:
    """Mean over the answers: 0.4 for a guess, 0.2 for beginning with its tag, 0.2 for ending with it, 0.2 as a gift."""
    texts = [turn.action.content.strip() for turn in trajectory.turns]
    each = (0.2 + 0.4 * bool(tagged(t)) + 0.2 * t.startswith("<guess>") + 0.2 * t.endswith("</guess>") for t in texts)
    return sum(each) / max(len(texts), 1)


class Wordle(Environment):
    """Wordle: a secret word of five letters, six guesses.

    The secret is the task's answer. The state has the `guesses` that were accepted, and their `marks`.
    """

    limits = Limits(max_turns=2 * GUESSES)
    rubric = Rubric(correct, partial, brevity, Part(form, 0.2))

    def __init__(self, known: Sequence[str] = (*ANSWERS, *OTHERS)):
        """`known` are the words that may be guessed."""
        self.known = frozenset(known)

    def tasks(self, split: str = "train") -> list[Task]:
        """Every secret once; every twentieth is for `eval`."""
        words = [(n, word) for n, word in enumerate(ANSWERS) if (n % 20 == 0) == (split == "eval")]
        return [Task(id=f"wordle-{n}", prompt=(system(RULES), user("Begin.")), answer=word) for n, word in words]

    async def run(self, episode: Episode) -> None:
        """One game."""
        said, fault, secret = episode.task.prompt, "", episode.task.answer
        seen: list[str] = episode.state.setdefault("guesses", [])
        told: list[str] = episode.state.setdefault("marks", [])
        while len(seen) < GUESSES and secret not in seen:
            await episode.agent.act(*said)
            guess, refused = latest(episode.agent.messages), fault
            bare = re.search(r"\[(\w+)\]", guess if "[" in guess or "]" in guess else f"[{guess}]")
            word = bare[1].lower() if bare else ""
            fault = "was guessed before" if word in seen else "" if word in self.known else "is no word of five letters"
            if fault and refused:
                return
            said = (user(f"'{word[:20]}' {fault}. Give another guess."),)
            if not fault:
                told.append(marks(word, secret))
                seen.append(word)
                said = (user(SHOWN.format(" ".join(word.upper()), " ".join(told[-1]), GUESSES - len(seen))),)
