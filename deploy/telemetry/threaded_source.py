"""Runs a slow source in its own thread, so that polls of the sockets never wait for it."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from deploy.telemetry.sources import Source
from faults.observations import Observation

MAX_WAITING: Final = 10_000  # observations; the oldest are dropped first


class ThreadedSource:
    """Returns the source's observations since the last poll, and its newest failure."""

    def __init__(self, source: Source, *, take_period_s: float) -> None:
        self.name = source.name
        self.period_s = take_period_s
        self._source = source
        self._observed: deque[Observation] = deque(maxlen=MAX_WAITING)
        self._failure: OSError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"look-{source.name}", daemon=True)
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
