"""Ends a run whose server refuses every request, after the first few and not after a thousand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from wanderlust.errors import BLOCKED, PolicyRefused
from wanderlust.policies.base import API_KEY_VARIABLE
from wanderlust.policies.refusals import MAX_REFUSALS, NO_CREDIT
from wanderlust.types import Rollout, Status

KEY_ADVICE = f"check the key: {API_KEY_VARIABLE}, or the variable that --api-key names"
ADVICE = {
    "HTTP 401": KEY_ADVICE,
    "HTTP 403": KEY_ADVICE,
    NO_CREDIT: "the account has nothing left to pay with: add credit, or use another key",
    "HTTP 404": "check the URL and the model's name (--model)",
}
"""What to do, by refusal."""
OTHER_ADVICE = "check the model's name and the options that are sent (--max-tokens, --temperature, --extra-body)"


@dataclass(slots=True, kw_only=True)
class RefusalGuard:
    """Counts rollouts that failed because a server refused a request for good.

    After MAX_REFUSALS equal ones in a row, while no rollout has succeeded, no further one starts. When those under way
    have ended without a success, that is a PolicyRefused; one success, and the guard lets everything pass for good.
    Failures that may pass by themselves (429, 5xx, a lost connection) do not count. A block by a provider's filter is
    the server's answer to one conversation, and so counts as a success.
    """

    succeeded: bool = False
    count: int = 0
    first: Rollout | None = None
    """The first refused rollout of the row."""
    live: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Wait until a rollout may start; each must `finish`. Raises PolicyRefused."""
        while self.is_closed:
            self.check()
            place = asyncio.get_running_loop().create_future()
            self.waiting.append(place)
            await place
        self.live += 1

    def finish(self, rollout: Rollout | None) -> None:
        """Count a rollout that has ended; None where it was cancelled."""
        self.live -= 1
        if rollout is None:
            pass
        elif rollout.status is not Status.ERROR or rollout.refusal.startswith(BLOCKED):
            self.succeeded = True
        elif rollout.refusal:
            if self.first is None or self.first.refusal != rollout.refusal:
                self.count, self.first = 0, rollout
            self.count += 1
        else:
            self.count, self.first = 0, None
        waiting, self.waiting = self.waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)

    @property
    def is_closed(self) -> bool:
        """Whether no further rollout starts for now."""
        return not self.succeeded and self.count >= MAX_REFUSALS

    def check(self) -> None:
        """Raise PolicyRefused where the server refuses everything."""
        if self.is_closed and not self.live and self.first is not None:
            advice = ADVICE.get(self.first.refusal, OTHER_ADVICE)
            raise PolicyRefused(f"stopped, as every request is refused: {self.first.error}; {advice}")
