"""`wander check`: does an environment keep its promises?"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from wanderlust.core.text import one_line
from wanderlust.environments.conformance import check_environment
from wanderlust.studio.arguments import Environments, Json, Policies, Positive, opened
from wanderlust.studio.output import result, result_json
from wanderlust.studio.resolve import Voice, find_environment, find_policy
from wanderlust.studio.session import stoppable


def check(env: Environments, /, *, policy: Policies | None = None, count: Positive = 4, json: Json = False) -> int:
    """Play a few tasks several times over and report every broken promise; the exit code is 1 when there is one.

    Looked at: plain tasks with different ids, prompts that can be sent, equal rollouts for equal seeds (alone, beside
    others, and replayed from the record), plain state, finite rewards, hostile answers, and where the environment has
    an oracle, that it scores higher than garbage.

    Parameters
    ----------
    count:
        How many tasks are played.
    """
    with stoppable(lambda: "stopped; nothing was kept"):
        found = find_environment(env)
        asked = None if policy is None else find_policy(policy, found.env, Voice(temperature=0.0)).policy

        async def look() -> list[dict[str, str]]:
            async with opened([] if asked is None else [asked]):
                return [asdict(one) for one in await check_environment(found.env, asked, count=count)]

        findings = asyncio.run(look())
    if json:
        result_json({"env": found.target, "findings": findings})
    elif findings:
        table = Table("promise", "what was found")
        for one in findings:
            table.add_row(one["rule"], Text(one_line(one["detail"], 500)))
        result(table)
    else:
        result(None, f"{found.name} keeps its promises ({count} tasks)")
    return 1 if findings else 0
