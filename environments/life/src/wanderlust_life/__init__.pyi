"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_life.assistant_life import AssistantLife as AssistantLife
from wanderlust_life.brief_worlds import BriefWorlds as BriefWorlds
from wanderlust_life.brief_worlds import Verb as Verb
from wanderlust_life.drafts import review_draft as review_draft
from wanderlust_life.lived.consistency import find_inconsistencies as find_inconsistencies
from wanderlust_life.lived.lived_universe import make_lived_universe as make_lived_universe
from wanderlust_life.story_drafts import EXAMPLE_STORY as EXAMPLE_STORY
from wanderlust_life.story_drafts import write_stories as write_stories
from wanderlust_life.universes.generate import make_universe as make_universe
from wanderlust_life.universes.personas import locale_persona as locale_persona
from wanderlust_life.world_benchmark import run_world_benchmark as run_world_benchmark
