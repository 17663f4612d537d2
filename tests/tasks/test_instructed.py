"""Any environment with another system text, from a file or from Python."""

import pytest

from wanderlust.errors import UsageError
from wanderlust.tasks.instructed import Instructed, with_instruction
from wanderlust.tasks.registry import load_environment
from wanderlust.types import Task, system, user

FILE = '''
from wanderlust import Rubric, SingleTurnEnvironment, Task, exact, system, user

class Colours(SingleTurnEnvironment):
    """Colours of things."""
    rubric = Rubric(exact())

    def tasks(self, split="train"):
        return [Task(id="sky", prompt=(system("Answer."), user("colour of sky number 0")), answer="BLUE")]
'''


def test_an_instructed_environment_is_the_environment_with_another_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colours.py").write_text(FILE)
    (tmp_path / "text.txt").write_text("Another text.\n")
    env = load_environment("instructed,file=text.txt,env=colours.py:Colours")
    task = env.tasks("eval")[0]
    assert [message.content for message in task.prompt] == ["Another text.", "colour of sky number 0"]
    assert with_instruction((user("x"),), "y") == (system("y"), user("x"))
    assert env.rubric is env.env.rubric
    for wrong in ("instructed,env=colours.py:Colours", "instructed,file=none.txt,env=colours.py:Colours"):
        with pytest.raises(UsageError):
            load_environment(wrong)
    with pytest.raises(UsageError, match="no prompt"):
        Instructed("colours.py:Colours", text="x").instructed(Task(id="a", prompt=()))
