"""Files of scenarios, loaded by ARE's own importer and played by it in oracle mode.

`python -m benchmarks.peers.are_imports FOLDER` answers each file of the folder, in order of names, with one line of
JSON: its name, the events that happened without an error, all of its events, and what ARE said against it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from are.simulation.data_handler.importer import JsonScenarioImporter
from are.simulation.environment import Environment, EnvironmentConfig

REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What ARE raises for a file that it does not take."""


def played(body: str) -> dict[str, Any]:
    """What came of one file."""
    events = len(json.loads(body)["events"])
    try:
        scenario = JsonScenarioImporter().import_from_json_to_benchmark(body)[0]
        scenario.initialize()
        scenario.patch_oracle_user_message_order()
        start, duration = scenario.start_time, scenario.duration
        world = Environment(
            EnvironmentConfig(oracle_mode=True, queue_based_loop=True, start_time=start, duration=duration)
        )
        world.run(scenario)
        log = world.event_log.list_view()
    except REFUSALS as error:
        return {"done": 0, "events": events, "error": f"{type(error).__name__}: {error}"}
    wrong = [one.metadata.exception for one in log if one.failed()]
    return {"done": len(log) - len(wrong), "events": events, "error": str(wrong[0]) if wrong else ""}


def main(folder: Path) -> None:
    """All files of a folder."""
    logging.disable(logging.CRITICAL)
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # ARE prints to where the answers go
    for file in sorted(folder.glob("*.json")):
        print(json.dumps({"file": file.stem, **played(file.read_text(encoding="utf-8"))}), file=told, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
