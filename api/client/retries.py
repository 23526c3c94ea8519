"""When a call is sent again, and after how long.

Again only when that cannot do the same thing twice: the service said "not now" (429 or 503 with `Retry-After`), or the
connection failed before anything was sent, or the call may be repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stamina

from api.client.calls import Call
from api.client.errors import ConnectionFailedError, RateLimitedError, ServerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Bounds on trying again.  Waits double from `wait_first_s`, with jitter, unless the service says how long."""

    attempts: int = 4
    wait_first_s: float = 0.1
    wait_most_s: float = 10.0  # a service that asks for longer than this is an error for the caller to see
    give_up_after_s: float = 30.0

    def context(self, call: Call[Any]) -> Any:
        """stamina's iterator of attempts, for `for` and for `async for`."""
        return stamina.retry_context(
            on=self._decision(call),
            attempts=self.attempts if call.retried else 1,
            timeout=self.give_up_after_s,
            wait_initial=self.wait_first_s,
            wait_max=self.wait_most_s,
            wait_jitter=self.wait_first_s,
        )

    def _decision(self, call: Call[Any]) -> Callable[[Exception], bool | float]:
        """False: let it out; True: again after the usual wait; a number: again after that many seconds."""

        def decide(error: Exception) -> bool | float:
            if isinstance(error, ConnectionFailedError):
                return call.repeatable or not error.sent
            if isinstance(error, RateLimitedError | ServerError) and error.problem.status in {429, 503}:
                return self._wait_s(error.retry_after_s)
            return False

        return decide

    def _wait_s(self, retry_after_s: float | None) -> bool | float:
        return retry_after_s if retry_after_s is not None and retry_after_s <= self.wait_most_s else False
