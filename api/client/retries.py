"""Decides when the client sends a call again, and after which delay.

It repeats a call only when that cannot execute the call twice: the service refused for now (429, or 503 with
`Retry-After`), the connection failed before anything was sent, or the call is repeatable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stamina

from api.client.calls import Call
from api.client.errors import ConnectionFailedError, RateLimitedError, ServerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Limits repetition.  Delays double from `wait_first_s`, with jitter, unless the service sets the delay."""

    attempts: int = 4
    wait_first_s: float = 0.1
    max_wait_s: float = 10.0  # a longer `Retry-After` is an error for the caller
    give_up_after_s: float = 30.0

    def context(self, call: Call[Any]) -> Any:
        """Return stamina's iterator of attempts, for `for` and for `async for`."""
        return stamina.retry_context(
            on=self._decision(call),
            attempts=self.attempts if call.retried else 1,
            timeout=self.give_up_after_s,
            wait_initial=self.wait_first_s,
            wait_max=self.max_wait_s,
            wait_jitter=self.wait_first_s,
        )

    def _decision(self, call: Call[Any]) -> Callable[[Exception], bool | float]:
        """Return False to raise, True to repeat after the usual delay, or a number of seconds after which to repeat."""

        def decide(error: Exception) -> bool | float:
            if isinstance(error, ConnectionFailedError):
                return call.repeatable or not error.sent
            if isinstance(error, RateLimitedError | ServerError) and error.problem.status in {429, 503}:
                return self._wait_s(error.retry_after_s)
            return False

        return decide

    def _wait_s(self, retry_after_s: float | None) -> bool | float:
        return retry_after_s if retry_after_s is not None and retry_after_s <= self.max_wait_s else False
