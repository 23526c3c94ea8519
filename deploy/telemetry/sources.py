"""The interface of a recorder's sources other than sockets."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from faults.observations import Observation

MAX_WAITING: Final = 10_000  # observations; the oldest are dropped first


class Source(Protocol):
    """A source of observations outside the job.  It bounds every file and reply that it reads."""

    name: str
    period_s: float

    def poll(self, now_s: float) -> Sequence[Observation]:
        """Return the current observations.  Raise OSError, which the recorder counts."""

    def close(self) -> None:
        """Release all resources."""


class Due(NamedTuple):
    at_s: float
    source: Source


class PollSchedule:
    """All sources, each with its own period."""

    def __init__(self, sources: Sequence[Source], *, steady_s: float) -> None:
        self._due = [Due(steady_s, source) for source in sources]

    def due(self, steady_s: float) -> Iterator[Source]:
        """Yield the sources that are due.  Missed periods are skipped."""
        for at, (due_s, source) in enumerate(self._due):
            if due_s <= steady_s:
                self._due[at] = Due(max(due_s + source.period_s, steady_s), source)
                yield source


class ThreadedSource:
    """Returns the source's observations since the last poll, and its newest failure."""

    def __init__(self, source: Source, *, take_period_s: float) -> None:
        self.name = source.name
        self.period_s = take_period_s
        self._source = source
        self._observed: deque[Observation] = deque(maxlen=MAX_WAITING)
        self._failure: OSError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"poll-{source.name}", daemon=True)
        self._thread.start()

    def poll(self, now_s: float) -> Sequence[Observation]:  # noqa: ARG002 - the port's
        """Return the observations since the last poll; raise a failure once."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return [self._observed.popleft() for _ in range(len(self._observed))]

    def close(self) -> None:
        """End the thread; a hanging daemon thread is left behind."""
        self._stop.set()
        self._thread.join(timeout=1.0)
        self._source.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._observed.extend(self._source.poll(time.time()))
            except OSError as error:
                self._failure = error
            self._stop.wait(self._source.period_s)
