"""Posts batches to the fault monitor from its own thread, within a budget of bytes per second.

After a batch of B bytes the next one waits B / budget seconds, which keeps the budget for every batch size.  Urgent
content does not wait.
"""

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import Final, Generic, TypeVar

from fleetwright.telemetry.batch_format import CONTENT_TYPE, PATH
from fleetwright.telemetry.http_post import HttpPoster

log = logging.getLogger(__name__)

MIN_WAIT_S: Final = 1.0
MAX_WAIT_S: Final = 2.0
RETRY_S: Final = 1.0
EARLY_S: Final = 0.05  # polls may be a little early
REPLY_S: Final = 2.0
MAX_OTHERS: Final = 4096  # that wait
MIN_OTHERS: Final = 8  # observations of a batch, whatever the budget allows
OTHER_BYTES: Final = 24  # estimate of one packed observation
CLOCK_STEP_S: Final = 0.5  # a slewed clock moves a thousandth of this between two batches

Content = TypeVar("Content")


class RefusedError(OSError):
    """The monitor refuses this batch for good."""


@dataclass(slots=True)
class SendStats:
    """What was sent, and what was dropped."""

    batches: int = 0
    body_bytes: int = 0
    wire_bytes: int = 0  # with the request's head
    thinned_polls: int = 0  # socket polls
    dropped: int = 0  # other observations
    failed: int = 0  # batches


class BatchSender(ABC, Generic[Content]):
    """Sessions, pacing, retries and clock steps.  A subclass collects the content and encodes it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        budget_bytes_per_s: float,
        min_wait_s: float = MIN_WAIT_S,
        sends_empty: bool = False,
        steady_s: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.sent = SendStats()
        self._url, self._budget = url, budget_bytes_per_s
        headers = {"Content-Type": CONTENT_TYPE} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._poster = HttpPoster(url, path=PATH, headers=headers, timeout_s=REPLY_S)
        self._session = secrets.token_hex(4)
        self._number = 0
        self._go, self._stop = threading.Event(), threading.Event()
        self._min_wait_s, self._sends_empty = min_wait_s, sends_empty
        self._urgent, self._due_s = False, steady_s() + min_wait_s
        self._steady_s, self._now_s = steady_s, now_s
        self._offset_s = now_s() - steady_s()
        self._thread = threading.Thread(target=self._run, name="send", daemon=True)
        self._thread.start()

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Return whether content is unsent."""

    @abstractmethod
    def _take(self) -> Content:
        """Return the content of the next batch."""

    @abstractmethod
    def _is_empty(self, content: Content) -> bool: ...

    @abstractmethod
    def _encode(self, content: Content, *, session: str, number: int, sent_s: float) -> bytes: ...

    @abstractmethod
    def _lost(self, content: Content, *, refused: bool) -> None:
        """The batch was not accepted; the subclass drops the content or keeps a part of it."""

    def _accepted(self, content: Content, *, body_bytes: int) -> None:
        """The monitor accepted the batch."""

    def _forget_base(self) -> bool:
        """Drop the base batch: the monitor lacks it, or the session ends.  Return whether there was one."""
        return False

    def _new_session(self, content: Content) -> Content:
        """Return the part of the content whose times are still valid after the wall clock was set."""
        return content

    def is_due(self) -> bool:
        """Return whether the next flush sends a batch."""
        return self._steady_s() >= self._due_s

    def flush(self) -> None:
        """Wake the thread if a batch is due or content is urgent."""
        if (self._urgent or self.is_due()) and (self.waiting or self._sends_empty):
            self._urgent, self._due_s = False, inf  # until this batch is sent
            self._go.set()

    def close(self) -> None:
        """Send the remaining content and end the thread."""
        self._stop.set()
        self._go.set()
        self._thread.join(timeout=2 * REPLY_S)

    def _affordable(self, *, reserved_bytes: float = 0.0) -> int:
        """Return the number of observations that the budget allows in one batch."""
        return max(MIN_OTHERS, int((self._budget * MAX_WAIT_S / 2 - reserved_bytes) / OTHER_BYTES))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._go.wait()
            self._go.clear()
            self._due_s = self._steady_s() + self._send() - EARLY_S
        self._send()
        self._poster.close()

    def _send(self) -> float:
        """Send one batch, and return the seconds until the next."""
        content = self._take()
        if self._clock_was_set():  # the monitor estimates the clock of a new session again
            self._session = secrets.token_hex(4)
            self._forget_base()
            content = self._new_session(content)
        if self._is_empty(content) and not self._sends_empty:
            return MIN_WAIT_S
        try:
            spent = self._post(content)
        except Exception as error:  # noqa: BLE001 - the thread must survive every reply
            if self.sent.failed == 0:
                self._log_failure(error)
            self.sent.failed += 1
            self._forget_base()
            self._lost(content, refused=isinstance(error, RefusedError))
            return RETRY_S
        return min(MAX_WAIT_S, max(self._min_wait_s, spent / self._budget))

    def _log_failure(self, error: Exception) -> None:
        log.warning("the fault monitor at %s was not reached: %s", self._url, error)

    def _clock_was_set(self) -> bool:
        offset_s = self._now_s() - self._steady_s()
        before_s, self._offset_s = self._offset_s, offset_s
        return abs(offset_s - before_s) > CLOCK_STEP_S

    def _post(self, content: Content) -> int:
        """Return the bytes sent.  A monitor that lacks the base batch gets a whole batch at once."""
        status, spent = self._post_once(content)
        if status == HTTPStatus.CONFLICT and self._forget_base():
            status, spent = self._post_once(content)
        if status != HTTPStatus.NO_CONTENT:
            refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
            raise (RefusedError if refused else OSError)(f"the monitor replied {status}")
        self.sent.batches += 1
        return spent

    def _post_once(self, content: Content) -> tuple[int, int]:
        body = self._encode(content, session=self._session, number=self._number, sent_s=self._now_s())
        self._number += 1
        status, spent = self._poster.post(body)
        self.sent.body_bytes += len(body)
        self.sent.wire_bytes += spent
        if status == HTTPStatus.NO_CONTENT:
            self._accepted(content, body_bytes=len(body))
        return status, spent
