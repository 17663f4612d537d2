"""Simulated worlds: apps with a clock, events and a log; scenarios, their verification, and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust_worlds.apps.mail import Mail as Mail
    from wanderlust_worlds.apps.user_interface import System as System
    from wanderlust_worlds.apps.user_interface import UserInterface as UserInterface
    from wanderlust_worlds.engine.app import App as App
    from wanderlust_worlds.engine.app import action as action
    from wanderlust_worlds.engine.cow_dict import CowDict as CowDict
    from wanderlust_worlds.engine.cow_dict import FrozenRecord as FrozenRecord
    from wanderlust_worlds.engine.events import ScenarioError as ScenarioError
    from wanderlust_worlds.engine.replay import replay_log as replay_log
    from wanderlust_worlds.engine.replay import restore as restore
    from wanderlust_worlds.engine.replay import snapshot as snapshot
    from wanderlust_worlds.engine.scenario import Scenario as Scenario
    from wanderlust_worlds.engine.scenario import capture as capture
    from wanderlust_worlds.engine.scenario import play_oracle as play_oracle
    from wanderlust_worlds.engine.world import Notice as Notice
    from wanderlust_worlds.engine.world import World as World
    from wanderlust_worlds.exchange.augmentation import with_augmentation as with_augmentation
    from wanderlust_worlds.exchange.gaia2_report import write_gaia2_report as write_gaia2_report
    from wanderlust_worlds.exchange.read import import_scenario as import_scenario
    from wanderlust_worlds.exchange.write import export_scenario as export_scenario
    from wanderlust_worlds.verification.oracle import Oracle as Oracle
    from wanderlust_worlds.verification.verdict import Verdict as Verdict
    from wanderlust_worlds.verification.verify import verify as verify
    from wanderlust_worlds.verification.world_judge import verify_with_judge as verify_with_judge
    from wanderlust_worlds.wrap.noise import with_noise as with_noise
    from wanderlust_worlds.wrap.teams import TeamWorldEnvironment as TeamWorldEnvironment
    from wanderlust_worlds.wrap.verified_environment import OracleRubric as OracleRubric
    from wanderlust_worlds.wrap.verified_environment import VerifiedWorldEnvironment as VerifiedWorldEnvironment
    from wanderlust_worlds.wrap.world_environment import WorldEnvironment as WorldEnvironment
    from wanderlust_worlds.wrap.world_environment import log_of as log_of
    from wanderlust_worlds.wrap.world_environment import thinking_time_per_token as thinking_time_per_token

_MODULES = {
    "engine.world": "World Notice",
    "engine.app": "App action",
    "engine.cow_dict": "CowDict FrozenRecord",
    "engine.events": "ScenarioError",
    "engine.scenario": "Scenario capture play_oracle",
    "engine.replay": "replay_log restore snapshot",
    "apps.user_interface": "System UserInterface",
    "apps.mail": "Mail",
    "verification.oracle": "Oracle",
    "verification.verdict": "Verdict",
    "verification.verify": "verify",
    "verification.world_judge": "verify_with_judge",
    "wrap.verified_environment": "VerifiedWorldEnvironment OracleRubric",
    "wrap.world_environment": "WorldEnvironment thinking_time_per_token log_of",
    "wrap.noise": "with_noise",
    "wrap.teams": "TeamWorldEnvironment",
    "exchange.augmentation": "with_augmentation",
    "exchange.gaia2_report": "write_gaia2_report",
    "exchange.read": "import_scenario",
    "exchange.write": "export_scenario",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
