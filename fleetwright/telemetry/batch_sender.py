"""Posts batches to the fault monitor from its own thread, within a budget of bytes per second.

After a batch of B bytes the next one waits B / budget seconds, which keeps the budget for every batch size.  Urgent
content does not wait.
"""

import logging
import secrets
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import inf
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from fleetwright.telemetry.batch_format import CONTENT_TYPE, PATH

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 64 * 1024
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


class ReplyError(OSError):
    """The reply is not HTTP/1."""


class HttpPoster:
    """One persistent HTTP/1.1 connection that posts bodies.

    A reply is a status: its body is read within bounds and dropped.  If the server closed an idle connection, the
    request is sent once more on a new one.  Every other failure is an OSError for the caller.
    """

    def __init__(self, url: str, *, path: str, headers: dict[str, str], timeout_s: float) -> None:
        parts = urlsplit(url)
        self._target = parts.path.rstrip("/") + path
        self._headers = {"Host": parts.netloc.rpartition("@")[2], "Accept-Encoding": "identity"} | headers
        host, port = parts.hostname or "", parts.port
        self._connection: HTTPConnection = (
            HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
            if parts.scheme == "https"
            else HTTPConnection(host, port, timeout=timeout_s)
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        self._head_bytes = len(f"POST {self._target} HTTP/1.1\r\n{head}Content-Length: \r\n\r\n".encode())

    def post(self, body: bytes) -> tuple[int, int]:
        """Return (status, bytes of the request).  Raise OSError."""
        reused = self._connection.sock is not None
        try:
            try:
                status = self._exchange(body)
            except ConnectionError:  # http.client's RemoteDisconnected is one
                if not reused:
                    raise
                self.close()
                status = self._exchange(body)
        except HTTPException as error:
            self.close()
            raise ReplyError(f"the reply is not HTTP/1: {str(error) or type(error).__name__}") from error
        except OSError:
            self.close()
            raise
        return status, self._head_bytes + len(str(len(body))) + len(body)

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, body: bytes) -> int:
        self._connection.request("POST", self._target, body=body, headers=self._headers)
        response = self._connection.getresponse()
        if response.length is None or response.length > MAX_BODY_BYTES:  # chunked, endless or too large
            self.close()
        else:
            response.read()
        return response.status


class RefusedError(OSError):
    """The monitor refuses this batch for good."""


@dataclass(slots=True)
class SendStats:
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
