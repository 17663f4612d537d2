"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust.rubrics.answers import final_answer as final_answer
from wanderlust.rubrics.choice_judge import ChoiceJudge as ChoiceJudge
from wanderlust.rubrics.generated import CHOICE_CRITERION_TEMPLATE as CHOICE_CRITERION_TEMPLATE
from wanderlust.rubrics.generated import Checklist as Checklist
from wanderlust.rubrics.generated import Criterion as Criterion
from wanderlust.rubrics.lengths import completion_tokens as completion_tokens
from wanderlust.rubrics.lengths import context_tokens as context_tokens
from wanderlust.rubrics.lengths import turns as turns
from wanderlust.rubrics.panel import JudgePanel as JudgePanel
from wanderlust.rubrics.reward_model import RewardModel as RewardModel
