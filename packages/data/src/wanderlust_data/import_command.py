"""`wander import`: logs of inspect_ai as runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import print_note, show_result
from wanderlust_data.inspect_logs import import_log


def import_log_command(
    log: Path, /, *, out: Path, scorer: Annotated[str, Parameter(show_default=False)] = "", json: JsonFlag = False
) -> int:
    """Write a log of inspect_ai (.eval or .json) into a new folder, an evaluation like any other.

    `wander show`, `wander compare`, `wander rescore`, `wander export` and the studio then take it.

    Parameters
    ----------
    log:
        The log.
    out:
        The new folder.
    scorer:
        Scorer whose value is the reward. Default: the log's headline, or its first one.
    """
    with stoppable(lambda: f"stopped; {out} is not complete: delete it"):
        report = import_log(log, out, scorer=scorer)
    body, table = {"log": str(log), "out": str(out), "report": report.as_dict()}, report.table(f"{log.name}, imported")
    show_result(body, f"wander show {out}", table=table, json=json)
    for name, errors in asdict(report)["errors"].items():
        print_note(f"{errors['count']} samples have no score: {name}: {errors['first']}")
    return 0
