"""A sum played through OpenEnv 0.10.0's own client: `URL TOKEN`. Prints what it saw as one JSON object."""

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient


async def play(url, token):
    async with GenericEnvClient(base_url=url, headers={"Authorization": f"Bearer {token}"}) as env:
        steps = [await env.reset(index=1, seed=0)]
        steps.append(await env.step({"type": "call_tool", "tool_name": "add", "arguments": {"numbers": [1, 2]}}))
        steps.append(await env.step({"text": steps[-1].observation["text"]}))
        state = await env.state()
    return {
        "texts": [step.observation["text"] for step in steps],
        "reward": sum(step.reward for step in steps),
        "done": steps[-1].done,
        "steps": state["step_count"],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(play(*sys.argv[1:]))))
