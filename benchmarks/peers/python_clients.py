"""Plays the modes of Python clients: reads `{"mode", "url", "key"}` a line, prints `{"answer"}` or `{"error"}`.

Run in an environment that has the clients, by `benchmarks/clients.py`. Every client is as it comes from PyPI. A mode is
a small agent: it lets the model call `weather`, twice at once, and returns the model's last text.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers import framework_modes, openai_modes, provider_modes
from benchmarks.peers.client_modes import MODES

LOADED = (openai_modes, provider_modes, framework_modes)
"""The modules that register modes."""


def main() -> None:
    """Play what is asked, line by line."""
    with ThreadPoolExecutor(1) as player:
        for line in sys.stdin:
            asked = json.loads(line)
            playing = player.submit(MODES[asked["mode"]], asked["url"], asked["key"])
            error = playing.exception()  # whatever a client raises is its outcome
            said = {"answer": playing.result()} if error is None else {"error": f"{type(error).__name__}: {error}"}
            print("\n@" + json.dumps(said), flush=True)  # clients may print lines of their own


if __name__ == "__main__":
    main()
