"""NCCL RAS in JSON: the operations that each rank has started on each communicator.

`SET FORMAT json`, then `VERBOSE STATUS` on port 28028 (since NCCL 2.28.7); field names are those of
src/ras/client_support.cc.  RAS may report a hung job as healthy (nccl#1730), so only its counts are used.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from faults.observations import Observation, OperationCounts
from faults.readers.fields import MAX_INDEX, Record, items, mapping, parse_record, text, whole
from faults.readers.job_map import JobMap
from faults.readers.lines import max_values, whole_document
from faults.readers.parse_errors import MalformedError, ParseErrors

MAX_PROCESSES = 1 << 17

Process = tuple[str, int, int]  # host, pid, GPU
SOURCE: Final = "ras"
MAX_OPS: Final = 64  # kinds of collective
_NO_ERROR: Final = (0, 7)  # ncclSuccess, ncclInProgress


class Communicators:
    """Maps members of a communicator to ranks of the job.

    NCCL numbers ranks within each communicator.  In a communicator as large as the job they are the job's own, by
    torch's order.  There the reader learns the process of each rank, and recognises it in smaller ones.
    """

    def __init__(self, job_map: JobMap) -> None:
        self._ranks = len(job_map.rank_node)
        self._rank_of: dict[Process, int] = {}

    def learn(self, process: Process, *, rank: int, size: int) -> None:
        if size == self._ranks and rank < size and (process in self._rank_of or len(self._rank_of) < MAX_PROCESSES):
            self._rank_of[process] = rank

    def rank(self, process: Process) -> int | None:
        return self._rank_of.get(process)

    def hosts(self) -> dict[int, str]:
        return {rank: host for (host, _, _), rank in self._rank_of.items()}


def parse_ras(
    content: bytes | Iterable[bytes], *, at_s: float, job_map: JobMap, members: Communicators, tally: ParseErrors
) -> Iterator[Observation]:
    """Parse one reply to a status request.  Lines before the JSON (the protocol's OK) are skipped."""
    with tally.skipping(SOURCE):
        data = whole_document(content)
        record = parse_record(max_values(data[max(data.find(b"{"), 0) :]))
        communicators = [each for each in items(record, "communicators") if isinstance(each, dict)]
        tally.add(SOURCE, "communicator is no mapping", times=len(record["communicators"]) - len(communicators))
        # The largest first: it identifies the processes of the others.
        for each in sorted(communicators, key=_size, reverse=True):
            with tally.skipping(SOURCE):
                yield from _communicator(each, at_s=at_s, job_map=job_map, members=members, tally=tally)


def _size(communicator: Record) -> int:
    size = communicator.get("size")
    return size if type(size) is int else 0


def _communicator(
    found: Record, *, at_s: float, job_map: JobMap, members: Communicators, tally: ParseErrors
) -> Iterator[Observation]:
    group = f"{text(found, 'hash')}/{text(found, 'secondary_hash', missing='')}"
    size = whole(found, "size", maximum=MAX_INDEX)
    everybody = [(each, False) for each in items(found, "ranks")]
    everybody += [(each, True) for each in items({"missing_ranks": [], **found}, "missing_ranks")]
    for each, missing in everybody:
        with tally.skipping(SOURCE):
            if not isinstance(each, dict):
                raise MalformedError("rank is no mapping")
            process = (text(each, "host"), _signed(each, "pid"), _signed(each, "cuda_dev"))
            members.learn(process, rank=whole(each, "rank", maximum=MAX_INDEX), size=size)
            status = mapping(each, "status")
            values = OperationCounts(group, size, _ops(each), _lost(status) if missing else _state(status))
            yield _observation(process, values, at_s=at_s, job_map=job_map, members=members)


def _observation(
    process: Process, values: OperationCounts, *, at_s: float, job_map: JobMap, members: Communicators
) -> Observation:
    rank = members.rank(process)
    if rank is None and not job_map.hosts:
        raise MalformedError("of an unknown process")
    node = job_map.host(process[0]) if rank is None else job_map.node(rank)
    return Observation(at_s, node, values, rank=rank)


def _signed(record: Record, key: str) -> int:
    """Return a number; -1 if RAS does not know it."""
    return -1 if record.get(key) == -1 else whole(record, key)


def _ops(found: Record) -> tuple[tuple[str, int], ...]:
    counts = mapping(found, "collective_counts")
    if len(counts) > MAX_OPS:
        raise MalformedError("too many kinds of collective")
    return tuple((op, whole(counts, op)) for op in sorted(counts))


def _state(status: Record) -> str:
    if status.get("abort_flag") is True:
        return "aborted"
    return "ok" if status.get("async_error", 0) in _NO_ERROR else "error"


def _lost(status: Record) -> str:
    if status.get("considered_dead") is True:
        return "dead"
    return "unresponsive" if status.get("unresponsive") is True else "missing"
