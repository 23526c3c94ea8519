"""A bounded queue between the job and an outlet, and the thread that empties it and beats the heart.

The job's side is one append.  When the queue is full the record is dropped and counted: the job's step matters more.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fleetwright.collectives.records import Line
from fleetwright.collectives.sinks import Sink

MAX_WAITING: Final = 4096
TURN_S: Final = 0.05  # between looks at the queue and at what is under way
AT_ONCE_S: Final = 0.5  # that the job waits at most, and only where an operation of its own has raised


@dataclass(slots=True)
class QueueStats:
    """What became of the records."""

    written: int = 0
    dropped: int = 0  # the queue was full
    failed: int = 0  # the outlet refused, or a record could not be made


class RecordQueue:
    """Records of one rank on their way out."""

    def __init__(
        self,
        sink: Sink,
        *,
        beat: Callable[[], Line],
        poll: Callable[[], None],
        heartbeat_s: float = 0.5,
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self.tally = QueueStats()
        self._sink = sink
        self._beat, self._poll = beat, poll
        self._turns = max(1, round(heartbeat_s / TURN_S))
        self._turn_s = heartbeat_s / self._turns
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[str, Callable[[], Line]]] = deque()
        self._stop = threading.Event()
        self._turning = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="fleetwright-watch", daemon=True)

    def start(self) -> None:
        """Begin to write and to beat."""
        self._thread.start()

    def put(self, kind: str, line: Callable[[], Line]) -> None:
        """Never waits, never raises; the line is made in the journal's thread."""
        if len(self._waiting) >= self._most_waiting:
            self.tally.dropped += 1
        else:
            self._waiting.append((kind, line))

    def close(self) -> None:
        """Write what is left and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        self.beat_now()
        self._guarded(self._sink.close)

    def beat_now(self) -> None:
        """A heartbeat from the caller's own thread, for the process may end before the journal's next turn."""
        if self._turning.acquire(timeout=AT_ONCE_S):
            try:
                self._turn(beats=True)
            finally:
                self._turning.release()

    def turn(self, *, beats: bool) -> None:
        """One turn of the thread."""
        with self._turning:
            self._turn(beats=beats)

    def _turn(self, *, beats: bool) -> None:
        self._guarded(self._poll)
        if beats:
            self._guarded(self._beat_once)
        wrote = False
        while self._waiting:
            kind, line = self._waiting.popleft()
            if self._guarded(lambda kind=kind, line=line: self._sink.put(kind, line())):  # type: ignore[misc]
                self.tally.written += 1
                wrote = True
        if wrote:
            self._guarded(self._sink.flush)

    def _run(self) -> None:
        turn = 0
        while not self._stop.wait(self._turn_s):
            turn += 1
            self.turn(beats=turn % self._turns == 0)

    def _beat_once(self) -> None:
        beat = self._beat()
        self._waiting.append(("hb", lambda: beat))

    def _guarded(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except Exception:  # noqa: BLE001 - nothing that goes wrong here may reach the job
            self.tally.failed += 1
            return False
        return True
