"""One rank: its collectives begin, end and fail here, whatever wraps them.

A bounded queue separates the job from the sink.  The job's side is one append; a full queue drops the record and counts
it.  The queue's thread empties it and sends heartbeats.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from fleetwright.collectives.progress import Line, Operation, Progress
from fleetwright.collectives.sinks import Sink

MAX_WAITING: Final = 4096
TURN_S: Final = 0.05  # between two polls of the queue and of operations under way
AT_ONCE_S: Final = 0.5  # limit of the job's wait, only after one of its operations raised


@dataclass(slots=True)
class QueueStats:
    written: int = 0
    dropped: int = 0  # the queue was full
    failed: int = 0  # the sink refused, or the record could not be made


class RecordQueue:
    def __init__(
        self,
        sink: Sink,
        *,
        beat: Callable[[], Line],
        poll: Callable[[], None],
        heartbeat_s: float = 0.5,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.tally = QueueStats()
        self._sink = sink
        self._beat, self._poll = beat, poll
        self._turns = max(1, round(heartbeat_s / TURN_S))
        self._turn_s = heartbeat_s / self._turns
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[str, Callable[[], Line]]] = deque()
        self._stop = threading.Event()
        self._turning = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="fleetwright-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, kind: str, line: Callable[[], Line]) -> None:
        """Queue a record without waiting or raising.  The queue's thread makes the line."""
        if len(self._waiting) >= self._max_waiting:
            self.tally.dropped += 1
        else:
            self._waiting.append((kind, line))

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        self.beat_now()
        self._guarded(self._sink.close)

    def beat_now(self) -> None:
        """Send a heartbeat from the caller's thread, because the process may end before the next turn."""
        if self._turning.acquire(timeout=AT_ONCE_S):
            try:
                self._turn(beats=True)
            finally:
                self._turning.release()

    def turn(self, *, beats: bool) -> None:
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


class RankReporter:
    """The progress of a rank and its queue.  The queue's thread calls `poll` several times a second."""

    def __init__(
        self, sink: Sink, *, rank: int, heartbeat_s: float = 0.5, poll: Callable[[], None] = lambda: None
    ) -> None:
        self.progress = Progress(rank)
        self.queue = RecordQueue(sink, beat=self.progress.beat, poll=self._poll, heartbeat_s=heartbeat_s)
        self._poll_operations = poll

    def begin(self, op: str, *, group: str = "", size_bytes: int = 0) -> Operation:
        return self.progress.begin(op, group=group, size_bytes=size_bytes)

    def end(self, operation: Operation) -> None:
        finished_s = self.progress.end(operation)
        if finished_s is not None:
            self.queue.put("coll", partial(operation.line, finished_s))

    def fail(self, operation: Operation | None) -> None:
        """Record that the operation raised, or that a send or receive did (None)."""
        if self.progress.fail(operation):
            self.queue.beat_now()

    def close(self, *, well: bool) -> None:
        if well:
            self.progress.close()
        self.queue.close()

    def _poll(self) -> None:
        self._poll_operations()
        for line in self.progress.long_under_way():
            self.queue.put("coll", lambda line=line: line)  # type: ignore[misc]
