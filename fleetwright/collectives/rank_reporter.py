"""One rank: its collectives begin, end and fail here, whatever wraps them."""

from collections.abc import Callable
from functools import partial

from fleetwright.collectives.progress import Operation, Progress
from fleetwright.collectives.queue import QueueStats, RecordQueue
from fleetwright.collectives.sinks import Sink


class RankReporter:
    """The progress of a rank and its queue.  The queue's thread calls `look` several times a second."""

    def __init__(
        self, sink: Sink, *, rank: int, heartbeat_s: float = 0.5, look: Callable[[], None] = lambda: None
    ) -> None:
        self.progress = Progress(rank)
        self.queue = RecordQueue(sink, beat=self.progress.beat, poll=self._poll, heartbeat_s=heartbeat_s)
        self._poll_extra = look

    @property
    def tally(self) -> QueueStats:
        """Return the counts of records written, dropped and failed."""
        return self.queue.tally

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
        """Write the remaining records, and report `done` if the rank ended well."""
        if well:
            self.progress.close()
        self.queue.close()

    def _poll(self) -> None:
        self._poll_extra()
        for line in self.progress.long_under_way():
            self.queue.put("coll", lambda line=line: line)  # type: ignore[misc]
