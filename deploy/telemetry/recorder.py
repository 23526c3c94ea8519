"""The loop: polls the sockets every period and other sources when they are due, and passes all to the sinks.

No source or sink can end it: a failed poll, an unreadable file and a full disk are counted and retried.  Missed polls
are skipped, because a backlog shows nothing.

All nodes poll at whole periods of the wall clock: the bytes that one end has sent and the other has not received, at
one time, separate late data from late acknowledgements (docs/explanation/faults/slow.md).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import floor, inf
from threading import Event
from typing import Final, Protocol

import structlog

from deploy.telemetry.diag import Sample
from deploy.telemetry.sources import PollSchedule, Source
from faults.observations import Observation

log = structlog.get_logger()

MAX_LATE: Final = 1000  # periods
MAX_SLEEP_S: Final = 0.25
END_S = 10 * MAX_SLEEP_S  # to write the remaining observations


class Sockets(Protocol):
    """Polls a node's connections."""

    def poll(self, now_s: float, *, wanted: bool) -> Sequence[Sample]:
        """Return samples of all peers: this poll and those held before, or none if none is `wanted` yet."""

    def held(self) -> Sequence[Sample]:
        """Return the held polls."""

    def close(self) -> None:
        """Close the sockets."""


class Sink(Protocol):
    """A destination of observations."""

    def is_due(self) -> bool:
        """Return whether the sink forwards at the end of this poll and so needs the newest samples."""

    def sample(self, sample: Sample) -> None:
        """Take one poll of the sockets."""

    def observed(self, observations: Sequence[Observation]) -> None:
        """Take other observations."""

    def flush(self) -> None:
        """End a poll."""

    def close(self) -> None:
        """End the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderClock:
    """Wall time for stamps, steady time for periods."""

    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class RecorderStats:
    polls: int = 0
    late_polls: int = 0  # ticks without a poll
    observations: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Recorder:
    def __init__(
        self,
        *,
        sockets: Sockets | None,
        sources: Sequence[Source] = (),
        sinks: Sequence[Sink],
        period_s: float = 0.25,
        ticks: int = 1,
        clock: RecorderClock | None = None,
    ) -> None:
        self.tally = RecorderStats()
        self._sockets, self._sources, self.sinks = sockets, tuple(sources), tuple(sinks)
        self._period_s = period_s
        self.tick_s = period_s / ticks  # sources may be polled so much more often than sockets
        self._clock = clock or RecorderClock()
        self._tick: int | None = None  # of the last poll
        self._turn: int | None = None  # the period of the last poll of sockets
        self._schedule = PollSchedule(self._sources, steady_s=self._clock.steady_s())

    def run(self, stop: Event, *, duration_s: float | None = None) -> RecorderStats:
        """Poll until `stop` is set or the duration ends, then close everything.  A stop takes up to MAX_SLEEP_S."""
        ends_s = inf if duration_s is None else self._clock.steady_s() + duration_s
        try:
            while self._slept_until_next(stop) and self._clock.steady_s() < ends_s:
                self.poll()
        finally:
            self.close()
        return self.tally

    def poll(self) -> None:
        """Poll what is due.  Sinks are flushed with the sockets: a source that is polled more often waits for them."""
        self.tally.polls += 1
        turn = floor(self._clock.now_s() / self._period_s)
        is_turn, self._turn = turn != self._turn, turn
        if is_turn and self._sockets is not None:
            self._poll_sockets(self._sockets)
        for source in self._schedule.due(self._clock.steady_s()):
            self._poll_source(source)
        for sink in self.sinks if is_turn else ():
            self._guarded("flush", sink.flush)

    def close(self) -> None:
        """Close every source and sink, whatever one of them raises."""
        closes = [source.close for source in self._sources] + [sink.close for sink in self.sinks]
        if self._sockets is not None:
            self._hand_over(self._sockets.held())
            closes.insert(0, self._sockets.close)
        for close in closes:
            self._guarded("close", close)

    def _poll_sockets(self, sockets: Sockets) -> None:
        wanted = any(sink.is_due() for sink in self.sinks)
        try:
            samples = sockets.poll(self._clock.now_s(), wanted=wanted)
        except OSError as error:
            self._failed("sockets", error)
            return
        self._hand_over(samples)

    def _hand_over(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self.tally.observations += 1 + len(sample.peers)
            for sink in self.sinks:
                self._guarded("sample", partial(sink.sample, sample))

    def _poll_source(self, source: Source) -> None:
        try:
            observations = source.poll(self._clock.now_s())
        except OSError as error:
            self._failed(source.name, error)
            return
        if not observations:
            return
        self.tally.observations += len(observations)
        for sink in self.sinks:
            self._guarded("observed", partial(sink.observed, observations))

    def _guarded(self, source: str, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            self._failed(source, error)

    def _failed(self, source: str, error: OSError) -> None:
        if self.tally.failures[source] == 0:
            log.warning("poll_failed", source=source, reason=str(error))
        self.tally.failures[source] += 1

    def _slept_until_next(self, stop: Event) -> bool:
        """Return False once `stop` is set.  A plain sleep, because waiting for an event costs a lock and more calls."""
        left_s = self._until_next_s()
        while not stop.is_set():
            time.sleep(min(left_s, MAX_SLEEP_S))
            if left_s <= MAX_SLEEP_S:
                return not stop.is_set()
            left_s -= MAX_SLEEP_S
        return False

    def _until_next_s(self) -> float:
        """Return the time to the next whole number of ticks on the wall clock."""
        now_s = self._clock.now_s()
        tick = floor(now_s / self.tick_s) + 1
        if self._tick is not None:
            # A clock that was set back, or far ahead, does not count as missed ticks.
            self.tally.late_polls += max(0, tick - self._tick - 1) if tick - self._tick < MAX_LATE else 0
        self._tick = tick
        return tick * self.tick_s - now_s


@contextmanager
def record_in_background(recorder: Recorder) -> Iterator[None]:
    """Record until the block ends.  The block continues if the recorder fails."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(recorder, stop), name="recorder", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # no thread can be started
        log.warning("recorder_not_started", reason=str(error))
        yield
        return
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
        tally = recorder.tally
        log.info("recorded", polls=tally.polls, observations=tally.observations, late_polls=tally.late_polls)


def _run(recorder: Recorder, stop: threading.Event) -> None:
    try:
        recorder.run(stop)
    except Exception:
        log.exception("recorder_ended")
