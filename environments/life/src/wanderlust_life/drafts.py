"""A folder of drafted stories: what became of each, and what people decided about it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from wanderlust.errors import StoreError, UsageError, quoted
from wanderlust_life.described import STORY_NAME, StoryError, check_story, read_family, read_story
from wanderlust_life.families.family import Family

T = TypeVar("T")
DRAFTS_FILE, REVIEWS_FILE = "drafts.jsonl", "reviews.jsonl"
Decision: TypeAlias = Literal["accept", "reject", "edit", "comment"]


class StoryDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A drafted story, when it was checked."""

    name: str
    state: Literal["ready", "easy", "failed"]
    capability: str
    asks: str = ""
    reason: str = ""
    """Why it is not ready."""
    attempts: int = 1
    """Answers of the writer that it took."""
    solved: dict[str, tuple[int, int]] = {}
    """By solver: tasks that it passed, and those that were played."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided about a draft. A later review takes the place of an earlier one, comments aside."""

    name: str
    decision: Decision
    comment: str = ""
    digest: str = ""
    """Of the story's text that was seen."""


class ReviewedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A draft with its text and its reviews."""

    draft: StoryDraft
    text: str
    """The story as it is now; empty where there is none."""
    digest: str
    reviews: list[Review]

    @property
    def decision(self) -> Literal["open", "accepted", "rejected"]:
        """Accepted or rejected as it stands; open where nobody said so since it was changed."""
        last = next((one for one in reversed(self.reviews) if one.decision != "comment"), None)
        if last is None or last.decision == "edit" or last.digest != self.digest:
            return "open"
        return "accepted" if last.decision == "accept" else "rejected"


def story_digest(text: str) -> str:
    """The digest of a story's text, by which a review says what it has seen."""
    return sha256(text.encode()).hexdigest()[:16]


def drafts_in(folder: Path) -> list[StoryDraft]:
    """The drafts of a folder in order; none where there are none. StoreError for a file that cannot be read."""
    drafts = _rows(folder / DRAFTS_FILE, StoryDraft)
    if wrong := [one.name for one in drafts if not STORY_NAME.fullmatch(one.name)]:  # names of files
        raise StoreError(f"{folder / DRAFTS_FILE}: {quoted(wrong[0])} is no name of a draft")
    return drafts


def reviewed_drafts(folder: Path) -> list[ReviewedDraft]:
    """The drafts with their texts and reviews. Raises UsageError where the folder has no drafts."""
    drafts = drafts_in(folder)
    if not drafts:
        raise UsageError(f"{folder} has no drafts: wander world write --out {folder} makes some")
    reviews = _rows(folder / REVIEWS_FILE, Review)
    found = []
    for one in drafts:
        place = folder / f"{one.name}.json"
        text = place.read_text(encoding="utf-8") if place.is_file() else ""
        own = [review for review in reviews if review.name == one.name]
        found.append(ReviewedDraft(draft=one, text=text, digest=story_digest(text), reviews=own))
    return found


def review_draft(folder: Path, name: str, decision: Decision, *, comment: str = "", text: str = "") -> ReviewedDraft:
    """Note a decision about a draft; `edit` puts another `text` in the story's place, which is checked before.

    Raises UsageError for a draft that is not there or has no story, and StoryError for a text that cannot be told.
    """
    found = next((one for one in reviewed_drafts(folder) if one.draft.name == name), None)
    if found is None:
        raise UsageError(f"{folder} has no draft {name!r}")
    if not found.text and decision != "comment":
        raise UsageError(f"{name} has no story: {found.draft.reason}")
    digest = found.digest
    if decision == "edit":
        story = read_story(text)
        if story.name != name:
            raise StoryError(f"the story is called {story.name!r}, expected {name!r}")
        check_story(story)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        digest = story_digest(text)
    review = Review(name=name, decision=decision, comment=comment, digest=digest)
    with (folder / REVIEWS_FILE).open("a", encoding="utf-8") as file:
        file.write(msgspec.json.encode(review).decode() + "\n")
    return next(one for one in reviewed_drafts(folder) if one.draft.name == name)


def accepted_families(folder: Path) -> list[Family]:
    """The families of the stories that were accepted as they stand. Raises UsageError where there is none."""
    found = [one.draft.name for one in reviewed_drafts(folder) if one.decision == "accepted"]
    if not found:
        raise UsageError(f"no draft in {folder} is accepted yet: wander world review {folder} NAME accept")
    return [read_family(folder / f"{name}.json") for name in found]


def stories_at(place: str) -> list[Family]:
    """The family of a story's file, or those of a folder of drafts; none for what is neither. Raises UsageError."""
    if place.endswith(".json"):
        return [read_family(Path(place))]
    return accepted_families(Path(place)) if (Path(place) / DRAFTS_FILE).is_file() else []


def _rows(path: Path, kind: type[T]) -> list[T]:
    if not path.is_file():
        return []
    try:
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=kind) for line in lines if line.strip()]
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
