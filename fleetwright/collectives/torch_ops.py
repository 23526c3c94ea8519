"""Watching torch.distributed where all of its Python functions end: at the methods of ProcessGroup.

There nothing of torch's own faces changes: `dist.isend` stays the function that P2POp asks for, names that were
imported early are watched as well, and so is what FSDP calls.  What C++ calls itself (DDP's reducer) is not seen: see
`ddp`.

An operation that raises is not through: at once, from the thread in which it did, a heartbeat says `failed`.  One that
is refused for its arguments (ValueError, TypeError) never began.

An operation ends when the caller has waited for it, as torch's own synchronous functions do at once, or when the
journal's thread, which asks some times a second, finds it complete.  On a GPU only the latter: waiting there is no end.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final

from fleetwright.collectives.point_to_point import Ended, Passes, watched_work
from fleetwright.collectives.progress import Operation, group_text
from fleetwright.collectives.queue import QueueStats
from fleetwright.collectives.rank_reporter import RankReporter
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
    """One rank under watch.  `step(n)` is optional; `close()` puts torch back as it was."""

    def __init__(self, dist: Any, *, sink: Sink, rank: int, heartbeat_s: float = 0.5) -> None:
        self._dist = dist
        self.reporter = RankReporter(sink, rank=rank, heartbeat_s=heartbeat_s, look=self._poll)
        self._progress, self._queue = self.reporter.progress, self.reporter.queue
        self._passes = Passes(lambda line: self._queue.put("coll", lambda: line), now_s=self._progress.now_s)
        self._watched_work = watched_work(dist.Work)
        self._polled: deque[tuple[Operation, Callable[[], bool]]] = deque()
        self._groups: dict[str, tuple[str, list[int]]] = {}
        self._before: dict[str, Any] = {}

    @property
    def tally(self) -> QueueStats:
        """Records written, dropped and failed."""
        return self.reporter.tally

    @property
    def active(self) -> bool:
        """Whether it watches now."""
        return bool(self._before)

    def start(self) -> "Watch":
        """Watch from now on."""
        group_type = self._dist.ProcessGroup
        for name in (*OPERATIONS, *PASSES):
            if name in vars(group_type):
                self._before[name] = vars(group_type)[name]
                around = self._collective if name in OPERATIONS else self._half
                setattr(group_type, name, around(name, getattr(group_type, name)))
        self._queue.start()
        return self

    def step(self, number: int) -> None:
        """The job says which step begins."""
        self._progress.step = number

    def close(self, *, well: bool | None = None) -> None:
        """Put every method back, write what is left, and say that the rank is done, unless it ends by an exception.

        Twice is once.  Who ends it from outside the job's thread says whether the job ended well.
        """
        if not self.active:
            return
        for name, method in self._before.items():
            setattr(self._dist.ProcessGroup, name, method)
        self._before = {}
        self.reporter.close(well=sys.exc_info()[0] is None if well is None else well)

    def begin(self, op: str, group: Any, tensors: Sequence[Any]) -> Operation | None:
        """An operation is called, with its output and its input; None where that could not be told."""
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

    def _begin_half(self, group: Any, tensors: Any, other: int, *, sends: bool) -> Ended | None:
        try:
            _text, ranks = self._group(group)
            if on_device(tensors):
                return None  # waiting for it ends long before it does
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
        """What the caller gets back: in host memory a Work that tells when it was waited for."""
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
        """Whether the current stream has come past here."""
        if not on_device(tensors):
            return lambda: True
        import torch  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only where there is one

        event = torch.cuda.Event()
        event.record()
        query: Callable[[], bool] = event.query
        return query

    def _poll(self) -> None:
        """From the journal's thread: what is through."""
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
    """Whether an operation on host memory is through; raises what it raised.

    A complete one is waited for in no time, and torch's other ways to ask are deprecated.
    """
    if not work.is_completed():
        return False
    work.wait()
    return True


def size_of(tensors: Any) -> int:
    """Bytes of a tensor, or of a list of them."""
    if type(tensors) is list:
        return sum(map(size_of, tensors))
    return getattr(tensors, "nbytes", 0)


def on_device(tensors: Any) -> bool:
    """Whether the first tensor lies on a GPU."""
    while type(tensors) is list and tensors:
        tensors = tensors[0]
    return getattr(tensors, "is_cuda", False)


_started: dict[int, Watch] = {}


def watch(dist: Any, *, to: str | None = None, rank: int | None = None, heartbeat_s: float = 0.5) -> Watch:
    """Watch this rank's torch.distributed: `watch(torch.distributed)` after `init_process_group`.

    `to` is a recording folder, or unix:PATH of the recorder's inbox and maybe, after a comma, the watcher to tell while
    the inbox refuses; else FLEETWRIGHT_COLLECTIVES says it.  Where it cannot be used the job goes on unwatched, and a
    warning says so.
    """
    if (known := _started.get(id(dist))) is not None and known.active:
        return known
    number = dist.get_rank() if rank is None else rank
    try:
        begun = Watch(dist, sink=sink_from(to, rank=number), rank=number, heartbeat_s=heartbeat_s).start()
    except (OSError, ValueError) as error:
        log.warning("collectives are not watched: %s", error)
        return Watch(dist, sink=NullSink(), rank=number, heartbeat_s=heartbeat_s)
    _started[id(dist)] = begun
    return begun
