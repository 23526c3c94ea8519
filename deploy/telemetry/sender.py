"""Sends the observations of a recorder or a prober to the fault monitor.

While the monitor is away only the newest observations wait, because a detector needs the present.  One-time events (an
error of a GPU, a dump) are kept for a minute.  A batch has all changes, and of the rest as much as the budget allows.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from deploy.telemetry.batch_codec import Base, encode
from deploy.telemetry.diag import Sample
from faults.observations import Collective, Heartbeat, Observation, PointToPoint, Probe, ProbeReturned, Process, Socket
from fleetwright.telemetry.batch_sender import MAX_OTHERS, MAX_WAIT_S, MIN_WAIT_S, OTHER_BYTES, BatchSender

log = structlog.get_logger()

_BACKOFF: Final = Socket._fields.index("backoff")
_ALIVE: Final = frozenset("RSD")
FAILED: Final = "failed"  # phase of a heartbeat, as in `fleetwright.collectives`
CPU_EVERY_S: Final = 1.0
MAX_POLLS: Final = 64
KEPT_S: Final = 60.0
SHARE_OF_POLLS: Final = 0.5  # of a batch's bytes, while it has other observations too
REPEATED: Final = (Collective, Heartbeat, PointToPoint, Probe, ProbeReturned, Process)


class SocketChanges:
    """Detects urgent polls: a peer is gone, or the kernel's backoff has grown."""

    def __init__(self) -> None:
        self._peers: NDArray[np.int64] | None = None
        self._backoff = 0

    def is_in(self, sample: Sample) -> bool:
        before, self._peers = self._peers, sample.peers
        waited, self._backoff = self._backoff, max(sample.rows[:, _BACKOFF].tolist(), default=0)
        if before is None:
            return False
        same = before is sample.peers or np.array_equal(before, sample.peers)
        gone = not same and np.setdiff1d(before, sample.peers, assume_unique=True).size > 0
        return gone or self._backoff > waited


class ProcessChanges:
    """Drops unchanged processes: their state changes seldom, their CPU time always."""

    def __init__(self) -> None:
        self._last: dict[int | None, Observation] = {}

    def kept(self, observations: Sequence[Observation]) -> list[Observation]:
        return [
            observation
            for observation in observations
            if not isinstance(observation.values, Process) or self._changed(observation)
        ]

    def _changed(self, observation: Observation) -> bool:
        before = self._last.get(observation.rank)
        if before is not None and _same_state(before, observation) and observation.at_s - before.at_s < CPU_EVERY_S:
            return False
        self._last[observation.rank] = observation
        return True


class Alarms:
    """Reports a stopped or ended process, and a failed collective of a rank, once each."""

    def __init__(self) -> None:
        self._active: set[tuple[int | None, type]] = set()

    def update(self, observations: Sequence[Observation]) -> bool:
        raised = False
        for observation in observations:
            values = observation.values
            if not isinstance(values, Process | Heartbeat):
                continue
            key = (observation.rank, type(values))
            alarming = values.state not in _ALIVE if isinstance(values, Process) else values.phase == FAILED
            raised |= alarming and key not in self._active
            (self._active.add if alarming else self._active.discard)(key)
        return raised


def thinned(samples: list[Sample], max_count: int) -> list[Sample]:
    """Return at most so many polls, evenly spaced, the newest included: counters are cumulative."""
    if len(samples) <= max_count:
        return samples
    picked = np.linspace(len(samples) - 1, 0, num=max(1, max_count), endpoint=max_count > 1).round().astype(int)
    return [samples[at] for at in sorted(set(picked.tolist()))]


def affordable(others: Sequence[Observation], max_count: int) -> list[Observation]:
    """Return at most so many, in order: first rare kinds, then the newest heartbeat of each rank, then the newest.

    Replies to probes come last, because the receivers usually report them too.
    """
    if len(others) <= max_count:
        return list(others)
    newest_beat = {
        observation.rank: at for at, observation in enumerate(others) if isinstance(observation.values, Heartbeat)
    }
    beats = set(newest_beat.values())

    def rank_of(at: int) -> tuple[int, int]:
        values = others[at].values
        if isinstance(values, ProbeReturned):
            return 3, -at
        common = isinstance(values, Collective | PointToPoint | Heartbeat)
        return (0 if not common else 1 if at in beats else 2), -at

    return [others[at] for at in sorted(sorted(range(len(others)), key=rank_of)[:max_count])]


class Content(NamedTuple):
    samples: list[Sample]
    others: list[Observation]


class Sender(BatchSender[Content]):
    """A sink that posts to the monitor, for a node's recorder or for its separate prober."""

    def __init__(
        self,
        url: str,
        *,
        node: int,
        prober: bool = False,
        token: str | None = None,
        budget_bytes_per_s: float = 1000.0,
        steady_s: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._prober = node, prober
        self._held: Base | None = None  # that the monitor holds
        self._encoded: Base | None = None  # that it will hold after the batch under way
        self._samples: deque[Sample] = deque(maxlen=MAX_POLLS)
        self._others: deque[Observation] = deque(maxlen=MAX_OTHERS)
        self._sockets, self._processes, self._alarms = SocketChanges(), ProcessChanges(), Alarms()
        self._poll_bytes = 120.0  # measured size of one poll in a batch
        super().__init__(
            url,
            token=token,
            budget_bytes_per_s=budget_bytes_per_s,
            min_wait_s=MAX_WAIT_S if prober else MIN_WAIT_S,  # a train is not urgent
            sends_empty=prober,  # its silence means that it is gone
            steady_s=steady_s,
            now_s=now_s,
        )

    @property
    def waiting(self) -> bool:
        return bool(self._samples or self._others)

    def sample(self, sample: Sample) -> None:
        self._urgent = self._sockets.is_in(sample) or self._urgent
        self._samples.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        kept = self._processes.kept(observations)
        self._urgent = self._alarms.update(kept) or self._urgent
        self.sent.dropped += max(0, len(self._others) + len(kept) - MAX_OTHERS)
        self._others.extend(kept)

    def _take(self) -> Content:
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        others = [self._others.popleft() for _ in range(len(self._others))]
        share = SHARE_OF_POLLS if others else 1.0
        kept = thinned(samples, max(1, int(share * self._budget / self._poll_bytes)))
        paid = affordable(others, self._affordable(reserved_bytes=len(kept) * self._poll_bytes))
        self.sent.thinned_polls += len(samples) - len(kept)
        self.sent.dropped += len(others) - len(paid)
        return Content(kept, paid)

    def _is_empty(self, content: Content) -> bool:
        return not content.samples and not content.others

    def _new_session(self, content: Content) -> Content:
        """Drop the polls, because they are of two clocks."""
        self.sent.thinned_polls += len(content.samples)
        return content._replace(samples=[])

    def _forget_base(self) -> bool:
        known, self._held = self._held is not None, None
        return known

    def _encode(self, content: Content, *, session: str, number: int, sent_s: float) -> bytes:
        body, self._encoded = encode(
            content.samples,
            content.others,
            session=session,
            number=number,
            held=self._held,
            node=self._node,
            prober=self._prober,
            sent_s=sent_s,
        )
        return body

    def _accepted(self, content: Content, *, body_bytes: int) -> None:
        samples, others = content
        if samples and self._held is not None:
            in_polls = max(1.0, body_bytes - OTHER_BYTES * len(others))
            self._poll_bytes += 0.3 * (in_polls / len(samples) - self._poll_bytes)
        held = self._encoded
        self._held = held if held is not None and held.rows.size else None  # without polls there is no base

    def _lost(self, content: Content, *, refused: bool) -> None:
        """One-time events wait for a monitor that is away; the next poll repeats everything else."""
        others = content.others
        if refused:
            self.sent.dropped += len(others)
            return
        after_s = self._now_s() - KEPT_S
        once = [
            observation
            for observation in others
            if not isinstance(observation.values, REPEATED) and observation.at_s > after_s
        ]
        free = max(0, MAX_OTHERS - len(self._others))
        self.sent.dropped += len(others) - min(free, len(once))
        self._others.extendleft(reversed(once[max(0, len(once) - free) :]))

    def _log_failure(self, error: Exception) -> None:
        log.warning("monitor_lost", url=self._url, reason=str(error))


def _same_state(before: Observation, observation: Observation) -> bool:
    one, other = before.values, observation.values
    if not isinstance(one, Process) or not isinstance(other, Process):
        return False
    return one.state == other.state or (one.state in _ALIVE and other.state in _ALIVE)
