"""Records the calls of the TCP library as the project's wrapper records torch's: same progress, journal and lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fleetwright.collectives.progress import Line, Progress
from fleetwright.collectives.rank_reporter import RecordQueue
from fleetwright.collectives.sinks import sink_from
from tests.testbed.lab.collectives import Bytes, Floats, Library, Passed

BEAT_S: Final = 0.5


class RecordedLibrary:
    def __init__(self, library: Library, *, rank: int, size: int, to: str) -> None:
        self._library, self._progress = library, Progress(rank)
        self._before, self._after = (rank - 1) % size, (rank + 1) % size
        self._queue = RecordQueue(
            sink_from(to, rank=rank), beat=self._progress.beat, poll=self._report_long, heartbeat_s=BEAT_S
        )
        self._queue.start()

    def step(self, number: int) -> None:
        self._progress.step = number

    def all_reduce(self, values: Floats) -> None:
        with self._recorded("all_reduce", values.nbytes):
            self._library.all_reduce(values)

    def all_to_all(self, out: Bytes, into: Bytes) -> None:
        with self._recorded("all_to_all", out.nbytes):
            self._library.all_to_all(out, into)

    def ring_pass(self, out: Bytes, into: Bytes) -> Passed:
        step, called_s = self._progress.step, self._progress.now_s()
        self._progress.passing += 1
        with self._complaining():
            passed = self._library.ring_pass(out, into)
        self._progress.passing -= 1
        times = {"t0": called_s, "tr": passed.received_s, "ts": passed.sent_s}
        line: Line = {"op": "p2p", "src": self._before, "dst": self._after, "n": into.nbytes, **times}
        self._put(line if step is None else {**line, "step": step})
        return passed

    @contextmanager
    def _recorded(self, op: str, size_bytes: int) -> Iterator[None]:
        begun = self._progress.begin(op, group="", size_bytes=size_bytes)
        with self._complaining():
            yield
        finished_s = self._progress.end(begun)
        if finished_s is not None:
            self._put(begun.line(finished_s))

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        """Report a failed operation; the rank that caused it cannot."""
        try:
            yield
        except ConnectionError:
            beat = {**self._progress.beat(), "phase": "failed"}
            self._queue.put("hb", lambda: beat)
            raise

    def _report_long(self) -> None:
        for line in self._progress.long_under_way():
            self._put(line)

    def _put(self, line: Line) -> None:
        self._queue.put("coll", lambda: line)
