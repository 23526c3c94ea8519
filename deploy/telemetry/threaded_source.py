"""A source that may take its time, in a thread of its own: looks at the sockets never wait for it."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from deploy.telemetry.sources import Source
from faults.observations import Observation

MAX_WAITING: Final = 10_000  # observations; the oldest go first


class ThreadedSource:
    """Hands over what the source has seen since the last look, and the newest of its failures."""

    def __init__(self, source: Source, *, take_period_s: float) -> None:
        self.name = source.name
        self.period_s = take_period_s
        self._source = source
        self._seen: deque[Observation] = deque(maxlen=MAX_WAITING)
        self._failure: OSError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"look-{source.name}", daemon=True)
        self._thread.start()

    def look(self, now_s: float) -> Sequence[Observation]:  # noqa: ARG002 - the port's
        """What has come; raises the failure once."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return [self._seen.popleft() for _ in range(len(self._seen))]

    def close(self) -> None:
        """End the thread; one that hangs is left behind, it is a daemon."""
        self._stop.set()
        self._thread.join(timeout=1.0)
        self._source.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._seen.extend(self._source.look(time.time()))
            except OSError as error:
                self._failure = error
            self._stop.wait(self._source.period_s)
