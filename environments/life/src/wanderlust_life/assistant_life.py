"""A person's life with thirteen apps: families of scenarios in made-up universes, graded without a model."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from wanderlust.environment import Episode
from wanderlust.errors import UsageError, one_line
from wanderlust.tasks.private import read_secret, secret_digests
from wanderlust.types import Policy, Rollout, Score, Task, Trajectory
from wanderlust_life.drafts import stories_at
from wanderlust_life.families.family import (
    LEVELS,
    PRIVATE_SEEDS,
    Family,
    OwnApps,
    all_families,
    find_apps,
    find_families,
    universe_seed,
)
from wanderlust_life.lived.lived_families import lived_families
from wanderlust_life.lived.search_player import search_policy
from wanderlust_life.long_stories import LONG_STORY
from wanderlust_life.planner.plan import planner_policy
from wanderlust_life.players import KeywordPolicy, OraclePolicy
from wanderlust_life.rewording import in_words, read_book
from wanderlust_life.universes.personas import Persona, find_persona
from wanderlust_life.universes.text_templates import Split
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import Gate, World
from wanderlust_worlds.verification.grading import FactGrader
from wanderlust_worlds.verification.oracle import TimeWindow
from wanderlust_worlds.verification.world_judge import WorldJudge, resolve_world_judge
from wanderlust_worlds.wrap.assistant import ASSISTANT_RULES, idle_policy
from wanderlust_worlds.wrap.teams import TeamWorldEnvironment
from wanderlust_worlds.wrap.verified_environment import seconds_until_last_action, verdict_parts
from wanderlust_worlds.wrap.world_environment import WorldEnvironment, log_of

LIFE_EVAL_SEEDS = 2
"""Tasks of the eval split for each family and level."""
SCENARIO_CACHE_ENTRIES = 256
"""Scenarios kept in memory; others are made again when needed, in a millisecond or two."""
UNIVERSES: Mapping[str, Callable[[], Mapping[str, Family]]] = {"sketched": all_families, "lived": lived_families}
"""Kinds of universes, and the families of tasks in each."""
FAMILY_SPLITS: Mapping[str, Split] = {"train": "train", "eval": "held"}
LIFE_PLAYERS: Mapping[str, Callable[[], Policy]] = {
    "nothing": idle_policy,
    "greedy": KeywordPolicy,
    "planner": planner_policy,
}
LIVED_PLAYERS: Mapping[str, Callable[[], Policy]] = {
    "nothing": idle_policy,
    "greedy": search_policy,
    "planner": planner_policy,
}


class AssistantLife(WorldEnvironment):
    """A person's life in thirteen apps: errands, searches, changing plans, waiting, unclear wishes; no model judges.

    `train` is endless, `eval` a fixed list whose people, places and firms do not occur in `train`. A task's id is
    `family/split-seed/level`: the scenario is made from it. The reward is 1 when everything was done, in order and in
    time, and nothing else was; `parts` grade the parts of the way.
    """

    group_by = "capability"
    graded_arguments = frozenset({"content"})
    players: Mapping[str, Callable[[], Policy]] = LIFE_PLAYERS
    capabilities: ClassVar[frozenset[str]] = frozenset()
    """The capabilities that tasks are made for; all when empty."""

    def __init__(
        self,
        families: Sequence[str] = (),
        *,
        levels: Sequence[int] | int = tuple(LEVELS),
        persona: Persona | str | None = None,
        more_apps: Sequence[OwnApps | str] | str = (),
        universe: str = "sketched",
        secret: str = "",
        book: str = "",
        judge: Policy | WorldJudge | str | None = None,
        judge_model: str | None = None,
        **options: Any,
    ):
        """`families` by name or place or one of them, all unless given; `levels` from 1 (easy) to 3, or one of them.

        `universe` is `sketched`, where a family plants what it needs, or `lived`, where tasks are found in what
        happened; the latter needs the extra `locales`, and has families of its own.

        A `persona` gives the lives its names: a Persona, or what `find_persona` takes. `more_apps` stand beside those
        of a life: functions of a universe and a seeded draw, app classes, or their names or places. `secret` is a
        file with the owner's secret text: the tasks of `eval` are then made from it, in universes of their own.

        `book` is a folder or file of `wander world write --reword`: mails and messages stand in its words.

        A `judge` (a policy or its name, with `judge_model` for an endpoint) is asked about texts that state the facts:
        both must accept. Other options as of WorldEnvironment. Raises UsageError for a family or a level that does not
        exist, and for what is no judge.
        """
        super().__init__((), **options)
        self.judge = resolve_world_judge(judge, judge_model)
        if universe not in UNIVERSES:
            raise UsageError(f"there is no universe {universe!r}: one of {', '.join(UNIVERSES)}")
        if universe == "lived":
            self.players = LIVED_PLAYERS
        named = [families] if isinstance(families, str) else families
        self.families = tuple(one for name in named for one in stories_at(name) or families_called(name)) or tuple(
            one
            for one in UNIVERSES[universe]().values()
            if not self.capabilities or one.capability in self.capabilities
        )
        self.persona = find_persona(persona) if isinstance(persona, str) else persona
        self._secret = read_secret(Path(secret)) if secret else ""
        self.book = read_book(Path(book)) if book else {}
        self.more_apps = tuple(map(find_apps, [more_apps] if isinstance(more_apps, str) else more_apps))
        self.levels = (levels,) if isinstance(levels, int) else tuple(levels)
        if wrong := [level for level in self.levels if level not in LEVELS]:
            raise UsageError(f"there is no level {wrong[0]}: one of {', '.join(map(str, LEVELS))}")
        self.rubric = options.get("rubric") or LifeRubric(self)
        self._scenarios: OrderedDict[str, tuple[Scenario, FactGrader]] = OrderedDict()

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """Families by turns, each at every level; endless in `train`. Raises UsageError for another split."""
        if split not in FAMILY_SPLITS:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(FAMILY_SPLITS)}")
        return self.tasks_of_seeds(split, count() if split == "train" else self.eval_seeds(LIFE_EVAL_SEEDS))

    def eval_seeds(self, number: int) -> Sequence[int]:
        """The seeds of `eval`, those of the secret where there is one."""
        if not self._secret:
            return range(number)
        return [PRIVATE_SEEDS + int(one[:12], 16) for one in secret_digests(self._secret, "life", number)]

    def tasks_of_seeds(self, split: str, seeds: Iterable[int]) -> Iterator[Task]:
        """Families by turns, each at every level, for one seed after the other."""
        for seed in seeds:
            for level in self.levels:
                for one in self.families:
                    info = {"family": one.name, "capability": one.capability, "level": level}
                    whose = "" if self.persona is None else f"/{self.persona.name}"
                    yield Task(id=f"{one.name}/{split}-{seed}/{level}{whose}", prompt=(ASSISTANT_RULES,), info=info)

    def scenario(self, task: Task) -> Scenario:
        """The scenario of a task, made from its id. Raises UsageError for an id of another form."""
        return self.scenario_and_grader(task.id)[0]

    def scenario_and_grader(self, name: str) -> tuple[Scenario, FactGrader]:
        """The scenario of a task's id, and its grader."""
        pair = self._scenarios.get(name)
        if pair is None:
            own = {one.name: one for one in self.families}
            scenario = scenario_of(name, families=own, persona=self.persona, apps=self.more_apps)
            scenario = in_words(scenario, self.book) if self.book else scenario
            pair = self._scenarios[name] = scenario, FactGrader(scenario)
            while len(self._scenarios) > SCENARIO_CACHE_ENTRIES:
                self._scenarios.popitem(last=False)
        self._scenarios.move_to_end(name)
        return pair

    def gate_of(self, scenario: Scenario) -> Gate | None:
        """The gate that marks an act as done when its facts hold."""
        return self.scenario_and_grader(scenario.id)[1]

    def grader_of(self, scenario: Scenario, window: TimeWindow | None) -> FactGrader:
        """The grader of the scenario's facts, for rubrics of worlds."""
        return FactGrader(scenario, window)

    def oracle(self, task: Task) -> Policy:
        """The policy that plays the oracle's acts through the agent's tools."""
        return OraclePolicy()


class AssistantLifeTeam(AssistantLife, TeamWorldEnvironment):  # `oracle` is the house's: a policy for a task
    """The same life in a team: mail, chats, messages, calendar and contacts have agents of their own.

    Each is a seat. Grading is the same, because what they write stands in the same log.
    """

    capabilities = frozenset({"agent2agent"})

    def __init__(self, apps: Sequence[str] = ("Emails", "Chats", "Messages", "Calendar", "Contacts"), **options: Any):
        """`apps` are the names of those that are agents, or one of them; other options as of AssistantLife.

        Raises UsageError for a name that no app has.
        """
        super().__init__(apps=(apps,) if isinstance(apps, str) else apps, **options)
        known = [app.name for app in scenario_of(f"{self.families[0].name}/train-0/1").apps]
        if missing := [name for name in self.apps if name not in known]:
            raise UsageError(f"there is no app {missing[0]!r}: one of {', '.join(known)}")

    async def on_turn_end(self, world: World, episode: Episode) -> None:
        """Turns are not verified by themselves: the gate lets the world go on."""

    async def on_episode_end(self, world: World, episode: Episode) -> None:
        """The rubric has the verdict."""


class LifeRubric:
    """Scores rollouts of a life by their logs: equal logs, equal scores."""

    def __init__(self, env: AssistantLife):
        self.env = env

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """1 for a log that is accepted (by the judge too, where there is one), else 0; parts as of the worlds' rubric.

        `simulated_seconds` is the time of the agent's last action, in seconds from the start.
        """
        (_, grader), log = self.env.scenario_and_grader(rollout.task.id), log_of(rollout)
        judge = self.env.judge
        verdict = grader.verdict(log) if judge is None else await grader.judged_verdict(log, judge)
        parts = verdict_parts(verdict)
        judged = {} if judge is None else {"undecided": float(verdict.decision == "undecided")}
        return Score(
            reward=parts["accepted"],
            parts=parts,
            metrics={"simulated_seconds": seconds_until_last_action(log), **judged},
            notes={"verdict": one_line(str(verdict), 1_000)},
        )


def families_called(name: str) -> list[Family]:
    """The families of a name, those of lived universes and long stories among them. UsageError when there are none."""
    if name == LONG_STORY.name:
        return [LONG_STORY]
    return [lived_families()[name]] if name in lived_families() else find_families(name)


def life_with(name: str) -> AssistantLife:
    """The environment whose universes the family of a task's id is in."""
    return AssistantLife(universe="lived" if name.partition("/")[0] in lived_families() else "sketched")


SCENARIO_ID = re.compile(r"(.+)/(train|eval)-(\d+)/(\d+)(?:/([\w-]+))?")


def scenario_id(name: str) -> str:
    """A scenario's id; a family's name alone is its first scenario of the eval split."""
    return name if SCENARIO_ID.fullmatch(name) else f"{name}/eval-0/1"


def named_scenario(name: str) -> Scenario:
    """The scenario of an id, or the first one of a family. Raises UsageError for any other name."""
    return scenario_of(scenario_id(name))


def scenario_of(
    name: str,
    *,
    families: Mapping[str, Family] = MappingProxyType({}),
    persona: Persona | None = None,
    apps: Sequence[OwnApps] = (),
) -> Scenario:
    """The scenario of a task's id, `family/split-seed/level` and the name of a persona where it has one.

    `families` and `persona` are looked up before those that are installed. Raises UsageError for anything else.
    """
    found = SCENARIO_ID.fullmatch(name)
    if found is None or int(found[4]) not in LEVELS:
        raise UsageError(f"{name!r} names no scenario: write family/split-seed/level, as in invite/eval-0/1")
    one = families.get(found[1]) or families_called(found[1])[0]
    difficulty, split, seed = LEVELS[int(found[4])], FAMILY_SPLITS[found[2]], int(found[3])
    if found[5] is None:
        return one.scenario(seed, difficulty, split=split, name=name, apps=apps)
    whose = persona if persona is not None and persona.name == found[5] else find_persona(found[5])
    within = one.make(universe_seed(seed, split), difficulty.size, split, persona=whose)
    return one.scenario(seed, difficulty, split=split, name=name, within=within, apps=apps)
