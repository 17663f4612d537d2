"""Simulated worlds: apps with a clock, events and a log; scenarios, their verification, and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust.worlds.apps.mail import Mail as Mail
    from wanderlust.worlds.apps.user_interface import System as System
    from wanderlust.worlds.apps.user_interface import UserInterface as UserInterface
    from wanderlust.worlds.engine.app import App as App
    from wanderlust.worlds.engine.app import action as action
    from wanderlust.worlds.engine.cow_dict import CowDict as CowDict
    from wanderlust.worlds.engine.cow_dict import FrozenRecord as FrozenRecord
    from wanderlust.worlds.engine.events import ScenarioError as ScenarioError
    from wanderlust.worlds.engine.replay import replay_log as replay_log
    from wanderlust.worlds.engine.replay import restore as restore
    from wanderlust.worlds.engine.replay import snapshot as snapshot
    from wanderlust.worlds.engine.scenario import Scenario as Scenario
    from wanderlust.worlds.engine.scenario import capture as capture
    from wanderlust.worlds.engine.scenario import play_oracle as play_oracle
    from wanderlust.worlds.engine.world import Notice as Notice
    from wanderlust.worlds.engine.world import World as World
    from wanderlust.worlds.exchange.augmentation import with_augmentation as with_augmentation
    from wanderlust.worlds.exchange.gaia2_report import write_gaia2_report as write_gaia2_report
    from wanderlust.worlds.exchange.read import import_scenario as import_scenario
    from wanderlust.worlds.exchange.write import export_scenario as export_scenario
    from wanderlust.worlds.verification.oracle import Oracle as Oracle
    from wanderlust.worlds.verification.verdict import Verdict as Verdict
    from wanderlust.worlds.verification.verify import verify as verify
    from wanderlust.worlds.verification.world_judge import verify_with_judge as verify_with_judge
    from wanderlust.worlds.wrap.noise import with_noise as with_noise
    from wanderlust.worlds.wrap.teams import TeamWorldEnvironment as TeamWorldEnvironment
    from wanderlust.worlds.wrap.verified_environment import OracleRubric as OracleRubric
    from wanderlust.worlds.wrap.verified_environment import VerifiedWorldEnvironment as VerifiedWorldEnvironment
    from wanderlust.worlds.wrap.world_environment import WorldEnvironment as WorldEnvironment
    from wanderlust.worlds.wrap.world_environment import log_of as log_of
    from wanderlust.worlds.wrap.world_environment import thinking_time_per_token as thinking_time_per_token

_MODULES = {
    "worlds.engine.world": "World Notice",
    "worlds.engine.app": "App action",
    "worlds.engine.cow_dict": "CowDict FrozenRecord",
    "worlds.engine.events": "ScenarioError",
    "worlds.engine.scenario": "Scenario capture play_oracle",
    "worlds.engine.replay": "replay_log restore snapshot",
    "worlds.apps.user_interface": "System UserInterface",
    "worlds.apps.mail": "Mail",
    "worlds.verification.oracle": "Oracle",
    "worlds.verification.verdict": "Verdict",
    "worlds.verification.verify": "verify",
    "worlds.verification.world_judge": "verify_with_judge",
    "worlds.wrap.verified_environment": "VerifiedWorldEnvironment OracleRubric",
    "worlds.wrap.world_environment": "WorldEnvironment thinking_time_per_token log_of",
    "worlds.wrap.noise": "with_noise",
    "worlds.wrap.teams": "TeamWorldEnvironment",
    "worlds.exchange.augmentation": "with_augmentation",
    "worlds.exchange.gaia2_report": "write_gaia2_report",
    "worlds.exchange.read": "import_scenario",
    "worlds.exchange.write": "export_scenario",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
