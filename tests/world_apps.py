"""Small apps for the tests of worlds."""

from __future__ import annotations

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.argument_checks import judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord


class Note(FrozenRecord):
    """A note."""

    id: str
    text: str
    lucky: int = 0


class Notes(App):
    """A notebook that counts, gambles, repeats itself and breaks."""

    notes: CowDict[Note] = CowDict()
    limit: int = 1_000

    @action("agent", "env", writes=True, notify="medium", says="note {text}", checks={"text": judged_text("note")})
    def add_note(self, text: str, lucky: bool = False) -> str:
        """Write a note.

        Args:
            text: What it says.
            lucky: Whether to draw a number for it.
        """
        if len(self.notes) >= self.limit:
            raise ToolError("the notebook is full")
        number = self.world.draw("luck").randrange(1_000_000) if lucky else 0
        note = Note(id=self.new_id(), text=text, lucky=number)
        self.notes[note.id] = note
        return note.id

    @action("agent", writes=True)
    def drop_note(self, note_id: str) -> None:
        """Throw a note away."""
        if note_id not in self.notes:
            raise ToolError(f"there is no note {note_id!r}")
        del self.notes[note_id]

    @action("agent")
    def list_notes(self) -> list[Note]:
        """All notes."""
        return list(self.notes.values())

    @action("agent", "env", writes=True, notify="high", says="tick")
    def tick(self, seconds: float, times: int = 1) -> None:
        """Write a note, and again after some seconds."""
        self.add_note(f"tick {times}")
        if times != 1:
            self.world.later(seconds, self.name, "tick", seconds=seconds, times=times - 1)

    @action("agent")
    def remember(self, text: str) -> None:
        """Write a note in a second."""
        self.world.later(1.0, self.name, "add_note", text=text)

    @action("agent", "env", writes=True)
    def explode(self) -> None:
        """Break."""
        raise ZeroDivisionError("boom")

    @action("env")
    def whisper(self, text: str) -> dict[str, list[str]]:
        """Say something that nobody is told."""
        return {"said": text.split()}


def texts(world):
    """What the notes of a world say."""
    return [note.text for note in world.apps["Notes"].notes.values()]
