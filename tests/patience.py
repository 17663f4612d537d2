"""How long a test waits for what must come: only a hang lasts longer, on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds. No test passes or fails by it: it ends what hangs."""
FOREVER = 10 * PATIENCE
"""Seconds that something lasts which a test must not wait for: who does hangs."""


def wait_until(condition: Callable[[], object], *, every: float = 0.01) -> None:
    """Return as soon as the condition holds. Raises TimeoutError when it never does."""
    late = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > late:
            raise TimeoutError("what was waited for did not come")
        time.sleep(every)
