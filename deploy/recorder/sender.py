"""Sends batches to a watcher over HTTP, within a budget of bytes a second, from a thread of its own.

After a batch of B bytes the next waits B / budget seconds, so the budget holds whatever the sizes; news does not wait.
When the watcher is away nothing is kept but the newest: what a detector needs is the present.
"""

import http.client
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import structlog

from deploy.recorder.diag import Sample
from deploy.recorder.thrift import ProcessNews, affordable, is_news, stopped, thinned
from deploy.recorder.wire import CONTENT_TYPE, PATH, Held, encode
from faults.observations import Observation

log = structlog.get_logger()

LEAST_WAIT_S: Final = 1.0
MOST_WAIT_S: Final = 2.0
RETRY_S: Final = 1.0
ANSWER_S: Final = 2.0
MOST_LOOKS: Final = 64
MOST_OTHERS: Final = 4096
OTHER_BYTES: Final = 24  # of one, packed: for the estimate only
MOST_RARE: Final = 8  # other observations of a batch, whatever the budget says
REQUEST_BYTES: Final = 26  # of a request's head beside its path, host and headers
SHARE_OF_LOOKS: Final = 0.5  # of a batch's bytes, while there are other observations too


@dataclass(slots=True)
class Sent:
    """What was sent, and what was not."""

    batches: int = 0
    body_bytes: int = 0
    wire_bytes: int = 0  # with the request's head
    thinned_looks: int = 0
    dropped: int = 0  # other observations
    failed: int = 0  # batches


class Sender:
    """A sink that is a watcher far away."""

    def __init__(self, url: str, *, node: int, token: str | None = None, budget_bytes_per_s: float = 1000.0) -> None:
        self.sent = Sent()
        self._parts = urlsplit(url)
        self._node, self._token, self._budget = node, token, budget_bytes_per_s
        self._session = secrets.token_hex(4)
        self._number = 0
        self._held: Held | None = None
        self._samples: deque[Sample] = deque(maxlen=MOST_LOOKS)
        self._others: deque[Observation] = deque(maxlen=MOST_OTHERS)
        self._processes = ProcessNews()
        self._last: Sample | None = None
        self._look_bytes = 120.0  # of a look in a batch, as last seen
        self._connection: http.client.HTTPConnection | None = None
        self._news, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="send", daemon=True)
        self._thread.start()

    def sample(self, sample: Sample) -> None:
        """One look at the sockets."""
        if is_news(sample, self._last):
            self._news.set()
        self._last = sample
        self._samples.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        """Anything else."""
        kept = self._processes.kept(observations)
        if stopped(kept):
            self._news.set()
        self.sent.dropped += max(0, len(self._others) + len(kept) - MOST_OTHERS)
        self._others.extend(kept)

    def flush(self) -> None:
        """The thread decides when."""

    def close(self) -> None:
        """Send what is left and end."""
        self._stop.set()
        self._news.set()
        self._thread.join(timeout=2 * ANSWER_S)

    def _run(self) -> None:
        wait_s = LEAST_WAIT_S
        while not self._stop.is_set():
            self._news.wait(wait_s)
            self._news.clear()
            wait_s = self._turn()
        self._turn()
        if self._connection is not None:
            self._connection.close()

    def _turn(self) -> float:
        """Send what there is; seconds until the next."""
        samples, others = self._taken()
        if not samples and not others:
            return LEAST_WAIT_S
        try:
            spent = self._post(samples, others)
        except Exception as error:  # noqa: BLE001 - a watcher may answer anything; this thread must live
            self._lost(error)
            return RETRY_S
        return min(MOST_WAIT_S, max(LEAST_WAIT_S, spent / self._budget))

    def _taken(self) -> tuple[list[Sample], list[Observation]]:
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        others = [self._others.popleft() for _ in range(len(self._others))]
        share = SHARE_OF_LOOKS if others else 1.0
        kept = thinned(samples, max(1, int(share * self._budget / self._look_bytes)))
        left = self._budget * MOST_WAIT_S / 2 - len(kept) * self._look_bytes
        paid = affordable(others, max(MOST_RARE, int(left / OTHER_BYTES)))
        self.sent.thinned_looks += len(samples) - len(kept)
        self.sent.dropped += len(others) - len(paid)
        return kept, paid

    def _post(self, samples: list[Sample], others: list[Observation]) -> int:
        """Bytes spent.  A watcher that does not hold what the batch builds on gets a whole one at once."""
        status, spent = self._post_once(samples, others)
        if status == http.client.CONFLICT and self._held is not None:
            self._held = None
            status, spent = self._post_once(samples, others)
        if status != http.client.NO_CONTENT:
            raise OSError(f"the watcher answered {status}")
        self.sent.batches += 1
        return spent

    def _post_once(self, samples: list[Sample], others: list[Observation]) -> tuple[int, int]:
        body, held = encode(
            samples,
            others,
            session=self._session,
            number=self._number,
            held=self._held,
            node=self._node,
            sent_s=time.time(),
        )
        self._number += 1
        status, spent = self._exchange(body)
        if status == http.client.NO_CONTENT:
            if samples and self._held is not None:
                in_looks = max(1.0, len(body) - OTHER_BYTES * len(others))
                self._look_bytes += 0.3 * (in_looks / len(samples) - self._look_bytes)
            self._held = held
        return status, spent

    def _exchange(self, body: bytes) -> tuple[int, int]:
        connection = self._connection = self._connection or self._connect()
        path = self._parts.path.rstrip("/") + PATH
        connection.putrequest("POST", path, skip_accept_encoding=True)
        headers = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(body))}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        answer.read(1 << 16)
        head = (
            len(path)
            + len(self._parts.netloc)
            + 26
            + sum(len(name) + len(value) + 4 for name, value in headers.items())
        )
        self.sent.body_bytes += len(body)
        self.sent.wire_bytes += head + len(body)
        return answer.status, head + len(body)

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        made = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return made(self._parts.hostname or "", self._parts.port, timeout=ANSWER_S)

    def _lost(self, error: Exception) -> None:
        if self.sent.failed == 0:
            log.warning("watcher_lost", url=self._parts.geturl(), reason=str(error))
        self.sent.failed += 1
        self._held = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
