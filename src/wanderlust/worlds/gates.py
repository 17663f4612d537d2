"""Gates: who says that what the agent did is what the oracle was waiting for, so that the world may go on."""

from __future__ import annotations

from wanderlust.worlds.app import Action
from wanderlust.worlds.events import Act
from wanderlust.worlds.log import Happened
from wanderlust.worlds.world import World


def first_fitting(world: World, line: Happened) -> None:
    """Fulfils the first expected act with this action and no argument that is certainly another one.

    Enough for worlds that must go on by themselves: it never rejects. Acts that were done before what the oracle does
    first are not recognised, and soft arguments (texts) are taken on trust: verification is another matter.
    """
    action = world.action(line)
    for act in world.expected:
        if action is not None and act.app == line.app and act.action == line.action and fits(world, act, line=line):
            world.fulfil(act.id, len(world.log) - 1)
            return


def fits(world: World, act: Act, *, line: Happened) -> bool:
    """Whether no argument of the line is certainly different from the act's, as the action's checks compare them."""
    action: Action = world.apps[act.app].actions[act.action]
    wanted, given = action.complete(world.args_of(act)), action.complete(line.args)
    return all(action.check(name).same(value, given[name]) is not False for name, value in wanted.items())
