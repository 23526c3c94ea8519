"""Sends batches to a watcher over HTTP, within a budget of bytes a second, from a thread of its own.

After a batch of B bytes the next waits B / budget seconds, so the budget holds whatever the sizes; news does not wait.
When the watcher is away nothing is kept but the newest: what a detector needs is the present.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

from deploy.recorder.diag import Sample
from deploy.recorder.posting import Poster
from deploy.recorder.thrift import Alarms, ProcessNews, affordable, is_news, thinned
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
        self._url, self._node, self._budget = url, node, budget_bytes_per_s
        headers = {"Content-Type": CONTENT_TYPE} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._poster = Poster(url, path=PATH, headers=headers, timeout_s=ANSWER_S)
        self._session = secrets.token_hex(4)
        self._number = 0
        self._held: Held | None = None
        self._samples: deque[Sample] = deque(maxlen=MOST_LOOKS)
        self._others: deque[Observation] = deque(maxlen=MOST_OTHERS)
        self._processes, self._alarms = ProcessNews(), Alarms()
        self._last: Sample | None = None
        self._look_bytes = 120.0  # of a look in a batch, as last seen
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
        if self._alarms.ring(kept):
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
        self._poster.close()

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
        if status == HTTPStatus.CONFLICT and self._held is not None:
            self._held = None
            status, spent = self._post_once(samples, others)
        if status != HTTPStatus.NO_CONTENT:
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
        status, spent = self._poster.post(body)
        self.sent.body_bytes += len(body)
        self.sent.wire_bytes += spent
        if status == HTTPStatus.NO_CONTENT:
            if samples and self._held is not None:
                in_looks = max(1.0, len(body) - OTHER_BYTES * len(others))
                self._look_bytes += 0.3 * (in_looks / len(samples) - self._look_bytes)
            self._held = held
        return status, spent

    def _lost(self, error: Exception) -> None:
        if self.sent.failed == 0:
            log.warning("watcher_lost", url=self._url, reason=str(error))
        self.sent.failed += 1
        self._held = None
