"""Wraps the methods of ProcessGroup, where all Python functions of torch.distributed end.

torch's own functions do not change: P2POp accepts `dist.isend`, and names imported early, FSDP included, are recorded.
Calls from C++ (DDP's reducer) are not: see `ddp`.

A failed operation does not end: the thread in which it raised sends a heartbeat `failed` at once.  An operation that is
refused for its arguments (ValueError, TypeError) never began.

An operation ends when the caller has waited for it, or when the queue's thread finds it complete.  On a GPU only the
latter counts, because waiting returns before the end.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final

from fleetwright.collectives.point_to_point import OnEnd, Passes, watched_work
from fleetwright.collectives.progress import Operation, group_text
from fleetwright.collectives.rank_reporter import QueueStats, RankReporter
from fleetwright.collectives.sinks import NullSink, Sink, sink_from

log = logging.getLogger(__name__)

OPERATIONS: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
REFUSALS: Final = (ValueError, TypeError)  # of arguments
PASSES: Final = {"send": True, "recv": False}


class Watch:
    """The recorder of one rank.  `step(n)` is optional; `close()` restores torch."""

    def __init__(self, dist: Any, *, sink: Sink, rank: int, heartbeat_s: float = 0.5) -> None:
        self._dist = dist
        self.reporter = RankReporter(sink, rank=rank, heartbeat_s=heartbeat_s, poll=self._poll)
        self._progress, self._queue = self.reporter.progress, self.reporter.queue
        self._passes = Passes(lambda line: self._queue.put("coll", lambda: line), now_s=self._progress.now_s)
        self._watched_work = watched_work(dist.Work)
        self._polled: deque[tuple[Operation, Callable[[], bool]]] = deque()
        self._groups: dict[str, tuple[str, list[int]]] = {}
        self._before: dict[str, Any] = {}

    @property
    def tally(self) -> QueueStats:
        return self._queue.tally

    @property
    def active(self) -> bool:
        return bool(self._before)

    def start(self) -> "Watch":
        group_type = self._dist.ProcessGroup
        for name in (*OPERATIONS, *PASSES):
            if name in vars(group_type):
                self._before[name] = vars(group_type)[name]
                around = self._collective if name in OPERATIONS else self._half
                setattr(group_type, name, around(name, getattr(group_type, name)))
        self._queue.start()
        return self

    def step(self, number: int) -> None:
        """Record the start of a step of the job."""
        self._progress.step = number

    def close(self, *, well: bool | None = None) -> None:
        """Restore every method, write the remaining records, and report `done` unless the rank ends by an exception.

        Idempotent.  A caller outside the job's thread passes whether the job ended well.
        """
        if not self.active:
            return
        for name, method in self._before.items():
            setattr(self._dist.ProcessGroup, name, method)
        self._before = {}
        self.reporter.close(well=sys.exc_info()[0] is None if well is None else well)

    def begin(self, op: str, group: Any, tensors: Sequence[Any]) -> Operation | None:
        """Record a call of an operation with its output and its input; None if it cannot be described."""
        try:
            text, _ranks = self._group(group)
            return self.reporter.begin(op, group=text, size_bytes=max(map(size_of, tensors), default=0))
        except Exception:  # noqa: BLE001 - the job goes on
            self.tally.failed += 1
            return None

    def _collective(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        op = OPERATIONS[name]

        @wraps(original)
        def called(group: Any, *args: Any, **named: Any) -> Any:
            begun = self.begin(op, group, args[:2])
            try:
                work = original(group, *args, **named)
            except BaseException as error:
                if begun is not None:
                    self._ended(begun, raised=error)
                raise
            return work if begun is None else self._follow(begun, work, args[0] if args else None)

        return called

    def _half(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        sends = PASSES[name]

        @wraps(original)
        def called(group: Any, tensors: Any, other: int, *args: Any, **named: Any) -> Any:
            ended = self._begin_half(group, tensors, other, sends=sends)
            try:
                work = original(group, tensors, other, *args, **named)
            except BaseException as error:
                if ended is not None:
                    ended(raised=error)
                raise
            if ended is None or work is None:
                return work
            try:
                return self._watched_work(work, ended)
            except Exception:  # noqa: BLE001 - the job goes on
                self.tally.failed += 1
                return work

        return called

    def _begin_half(self, group: Any, tensors: Any, other: int, *, sends: bool) -> OnEnd | None:
        try:
            _text, ranks = self._group(group)
            if on_device(tensors):
                return None  # waiting returns long before it ends
            half = self._passes.begin(
                sends=sends, other=ranks[other], size_bytes=size_of(tensors), step=self._progress.step
            )
        except Exception:  # noqa: BLE001 - the job goes on
            self.tally.failed += 1
            return None
        self._progress.begin_pass()

        def ended(*, raised: BaseException | None) -> None:
            if half.done_s is not None:
                return
            self._progress.end_pass()
            if raised is None:
                self._passes.end(half)
                return
            self._passes.forget(half)
            if not isinstance(raised, REFUSALS):
                self.reporter.fail(None)

        return ended

    def _follow(self, begun: Operation, work: Any, tensors: Any) -> Any:
        """Return the result for the caller: in host memory a Work that reports when it was waited for."""
        try:
            if work is None:
                self._poll_until(begun, self._event_query(tensors))
                return None
            if on_device(tensors):
                self._poll_until(begun, work.is_completed)
                return work
            self._poll_until(begun, partial(through, work))
            return self._watched_work(work, partial(self._ended, begun))
        except Exception:  # noqa: BLE001 - the job goes on
            self.tally.failed += 1
            self.reporter.end(begun)
            return work

    def _ended(self, begun: Operation, *, raised: BaseException | None) -> None:
        if raised is None:
            self.reporter.end(begun)
        elif isinstance(raised, REFUSALS):
            self._progress.withdraw(begun)
        else:
            self.reporter.fail(begun)

    def _poll_until(self, begun: Operation, done: Callable[[], bool]) -> None:
        self._polled.append((begun, done))

    def _event_query(self, tensors: Any) -> Callable[[], bool]:
        """Return a query whether the current stream has passed this point."""
        if not on_device(tensors):
            return lambda: True
        import torch  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only where there is one

        event = torch.cuda.Event()
        event.record()
        query: Callable[[], bool] = event.query
        return query

    def _poll(self) -> None:
        """End the operations that are complete; the queue's thread calls this method."""
        for _ in range(len(self._polled)):
            begun, done = self._polled.popleft()
            try:
                over = begun.failed or not self._progress.is_open(begun) or done()
            except Exception:  # noqa: BLE001 - it raised, or its communicator was aborted
                if self._progress.fail(begun):
                    beat = self._progress.beat()
                    self._queue.put("hb", lambda beat=beat: beat)  # type: ignore[misc]
                continue
            if over:
                self.reporter.end(begun)
            else:
                self._polled.append((begun, done))

    def _group(self, group: Any) -> tuple[str, list[int]]:
        name = group.group_name
        if name not in self._groups:
            ranks = list(self._dist.get_process_group_ranks(group))
            self._groups[name] = group_text(ranks, world=self._dist.get_world_size()), ranks
        return self._groups[name]


def through(work: Any) -> bool:
    """Return whether an operation on host memory has ended; raise what it raised.

    Waiting for a complete operation takes no time, and torch's other accessors are deprecated.
    """
    if not work.is_completed():
        return False
    work.wait()
    return True


def size_of(tensors: Any) -> int:
    if type(tensors) is list:
        return sum(map(size_of, tensors))
    return getattr(tensors, "nbytes", 0)


def on_device(tensors: Any) -> bool:
    while type(tensors) is list and tensors:
        tensors = tensors[0]
    return getattr(tensors, "is_cuda", False)


_started: dict[int, Watch] = {}


def watch(dist: Any, *, to: str | None = None, rank: int | None = None, heartbeat_s: float = 0.5) -> Watch:
    """Record this rank's collectives: `watch(torch.distributed)` after `init_process_group`.

    `to` is a recording folder, or unix:PATH of the recorder's inbox and optionally, after a comma, the monitor that
    takes the records while the inbox refuses.  The default is the variable FLEETWRIGHT_COLLECTIVES.  If the destination
    cannot be used, a warning is logged and the job continues unrecorded.
    """
    if (known := _started.get(id(dist))) is not None and known.active:
        return known
    number = dist.get_rank() if rank is None else rank
    try:
        begun = Watch(dist, sink=sink_from(to, rank=number), rank=number, heartbeat_s=heartbeat_s).start()
    except (OSError, ValueError) as error:
        log.warning("collectives are not recorded: %s", error)
        return Watch(dist, sink=NullSink(), rank=number, heartbeat_s=heartbeat_s)
    _started[id(dist)] = begun
    return begun
