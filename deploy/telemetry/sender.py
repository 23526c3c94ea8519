"""Sends batches to a watcher over HTTP, within a budget of bytes a second, from a thread of its own.

After a batch of B bytes the next waits B / budget seconds, so the budget holds whatever the sizes; news does not wait.
When the watcher is away nothing is kept but the newest, for what a detector needs is the present, and for a minute what
is told once: an error of a GPU, a dump.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import Final

import structlog

from deploy.telemetry.batch_codec import CONTENT_TYPE, PATH, Held, encode
from deploy.telemetry.diag import Sample
from deploy.telemetry.http_post import Poster
from deploy.telemetry.sampling_budget import Alarms, ProcessNews, SocketNews, affordable, thinned
from faults.observations import Collective, Heartbeat, Observation, Pass, Probe, ProbeReturned, Process

log = structlog.get_logger()

MIN_WAIT_S: Final = 1.0
MAX_WAIT_S: Final = 2.0
RETRY_S: Final = 1.0
EARLY_S: Final = 0.05  # looks are a little early or late
ANSWER_S: Final = 2.0
SET_S: Final = 0.5  # a clock that is drawn nearer moves a thousandth of that between two batches
MAX_LOOKS: Final = 64
MAX_OTHERS: Final = 4096
OTHER_BYTES: Final = 24  # of one, packed: for the estimate only
KEPT_S: Final = 60.0
MAX_RARE: Final = 8  # other observations of a batch, whatever the budget says
SHARE_OF_LOOKS: Final = 0.5  # of a batch's bytes, while there are other observations too
REPEATED: Final = (Collective, Heartbeat, Pass, Probe, ProbeReturned, Process)


class RefusedError(OSError):
    """The watcher will not have this batch, however often it comes."""


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
    """A sink that is a watcher far away: of a node's recorder, of its `prober` where that is another process, or of one
    `rank` that tells it what it does itself.
    """

    def __init__(
        self,
        url: str,
        *,
        node: int,
        rank: int | None = None,
        prober: bool = False,
        token: str | None = None,
        budget_bytes_per_s: float = 1000.0,
        steady_s: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.sent = Sent()
        self._url, self._node, self._rank, self._prober = url, node, rank, prober
        self._budget = budget_bytes_per_s
        headers = {"Content-Type": CONTENT_TYPE} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._poster = Poster(url, path=PATH, headers=headers, timeout_s=ANSWER_S)
        self._session = secrets.token_hex(4)
        self._number = 0
        self._held: Held | None = None
        self._samples: deque[Sample] = deque(maxlen=MAX_LOOKS)
        self._others: deque[Observation] = deque(maxlen=MAX_OTHERS)
        self._sockets, self._processes, self._alarms = SocketNews(), ProcessNews(), Alarms()
        self._look_bytes = 120.0  # of a look in a batch, as last seen
        self._go, self._stop = threading.Event(), threading.Event()
        self._least_wait_s = MAX_WAIT_S if prober else MIN_WAIT_S  # a train is no news
        self._news, self._due_s = False, steady_s() + self._least_wait_s
        self._steady_s, self._now_s = steady_s, now_s
        self._offset_s = now_s() - steady_s()
        self._thread = threading.Thread(target=self._run, name="send", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> bool:
        """Whether anything is not sent yet."""
        return bool(self._samples or self._others)

    def is_due(self) -> bool:
        """Whether a batch is sent at the end of this look."""
        return self._steady_s() >= self._due_s

    def sample(self, sample: Sample) -> None:
        """One look at the sockets."""
        self._news = self._sockets.is_in(sample) or self._news
        self._samples.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        """Anything else."""
        kept = self._processes.kept(observations)
        self._news = self._alarms.ring(kept) or self._news
        self.sent.dropped += max(0, len(self._others) + len(kept) - MAX_OTHERS)
        self._others.extend(kept)

    def flush(self) -> None:
        """Wake the thread, where it is time or there is news."""
        if (self._news or self.is_due()) and (self.waiting or self._prober):
            self._news, self._due_s = False, inf  # until this one is sent
            self._go.set()

    def close(self) -> None:
        """Send what is left and end."""
        self._stop.set()
        self._go.set()
        self._thread.join(timeout=2 * ANSWER_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._go.wait()
            self._go.clear()
            self._due_s = self._steady_s() + self._turn() - EARLY_S
        self._turn()
        self._poster.close()

    def _turn(self) -> float:
        """Send what there is; seconds until the next."""
        samples, others = self._taken()
        if self._was_set():
            samples = self._begun_anew(samples)
        if not samples and not others and not self._prober:  # whose silence would be that of one which is gone
            return MIN_WAIT_S
        try:
            spent = self._post(samples, others)
        except Exception as error:  # noqa: BLE001 - a watcher may answer anything; this thread must live
            self._lost(error)
            if isinstance(error, RefusedError):
                self.sent.dropped += len(others)
            else:
                self._keep(others)
            return RETRY_S
        return min(MAX_WAIT_S, max(self._least_wait_s, spent / self._budget))

    def _was_set(self) -> bool:
        """Whether somebody has set the wall clock since the last batch."""
        offset_s = self._now_s() - self._steady_s()
        before_s, self._offset_s = self._offset_s, offset_s
        return abs(offset_s - before_s) > SET_S

    def _begun_anew(self, samples: list[Sample]) -> list[Sample]:
        """None of these: they are of two clocks.  To a watcher it is another agent, whose clock it learns again."""
        self.sent.thinned_looks += len(samples)
        self._session, self._held = secrets.token_hex(4), None
        return []

    def _taken(self) -> tuple[list[Sample], list[Observation]]:
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        others = [self._others.popleft() for _ in range(len(self._others))]
        share = SHARE_OF_LOOKS if others else 1.0
        kept = thinned(samples, max(1, int(share * self._budget / self._look_bytes)))
        left = self._budget * MAX_WAIT_S / 2 - len(kept) * self._look_bytes
        paid = affordable(others, max(MAX_RARE, int(left / OTHER_BYTES)))
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
            refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
            raise (RefusedError if refused else OSError)(f"the watcher answered {status}")
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
            rank=self._rank,
            prober=self._prober,
            sent_s=self._now_s(),
        )
        self._number += 1
        status, spent = self._poster.post(body)
        self.sent.body_bytes += len(body)
        self.sent.wire_bytes += spent
        if status == HTTPStatus.NO_CONTENT:
            if samples and self._held is not None:
                in_looks = max(1.0, len(body) - OTHER_BYTES * len(others))
                self._look_bytes += 0.3 * (in_looks / len(samples) - self._look_bytes)
            self._held = held if held.rows.size else None  # without looks there is nothing to build on
        return status, spent

    def _keep(self, others: Sequence[Observation]) -> None:
        """What is told once waits for a watcher that is away for a moment; all else is told anew by the next look."""
        after_s = self._now_s() - KEPT_S
        once = [seen for seen in others if not isinstance(seen.values, REPEATED) and seen.at_s > after_s]
        room = max(0, MAX_OTHERS - len(self._others))
        self.sent.dropped += len(others) - min(room, len(once))
        self._others.extendleft(reversed(once[max(0, len(once) - room) :]))

    def _lost(self, error: Exception) -> None:
        if self.sent.failed == 0:
            log.warning("watcher_lost", url=self._url, reason=str(error))
        self.sent.failed += 1
        self._held = None
