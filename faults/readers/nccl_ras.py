"""NCCL RAS in JSON: the operations that each rank has started on each communicator, and lost processes.

`SET FORMAT json`, then `VERBOSE STATUS` on port 28028 (since NCCL 2.28.7) or `MONITOR` (since 2.29); field names are
those of src/ras/client_support.cc.  RAS may report a hung job as healthy (nccl#1730), so only its counts are used.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from faults.observations import Observation, OperationCounts
from faults.readers.communicators import Communicators, Process
from faults.readers.documents import most_values, whole_document
from faults.readers.fields import MAX_INDEX, Record, items, mapping, parse_record, text, whole
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError, ParseErrors

SOURCE: Final = "ras"
MAX_OPS: Final = 64  # kinds of collective
DEAD: Final = "PEER_DEAD"
_NO_ERROR: Final = (0, 7)  # ncclSuccess, ncclInProgress


def parse_ras(
    content: bytes | Iterable[bytes], *, at_s: float, job_map: JobMap, members: Communicators, tally: ParseErrors
) -> Iterator[Observation]:
    """Parse one reply to a status request.  Lines before the JSON (the protocol's OK) are skipped."""
    with tally.skipping(SOURCE):
        data = whole_document(content)
        record = parse_record(most_values(data[max(data.find(b"{"), 0) :]))
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
    size = whole(found, "size", most=MAX_INDEX)
    everybody = [(each, False) for each in items(found, "ranks")]
    everybody += [(each, True) for each in items({"missing_ranks": [], **found}, "missing_ranks")]
    for each, missing in everybody:
        with tally.skipping(SOURCE):
            if not isinstance(each, dict):
                raise MalformedError("rank is no mapping")
            process = (text(each, "host"), _signed(each, "pid"), _signed(each, "cuda_dev"))
            members.learn(process, rank=whole(each, "rank", most=MAX_INDEX), size=size)
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


def parse_ras_events(
    data: bytes, *, at_s: float, job_map: JobMap, members: Communicators, tally: ParseErrors
) -> Iterator[Observation]:
    """Parse the output of `MONITOR` so far: processes that RAS has lost.  Other events are ignored."""
    for event in _objects(data, tally=tally):
        with tally.skipping(SOURCE):
            if text(event, "event") != DEAD:
                continue
            for process in _processes(mapping(event, "peer")):
                yield _observation(
                    process, OperationCounts("", 0, (), "dead"), at_s=at_s, job_map=job_map, members=members
                )


def _processes(peer: Record) -> list[Process]:
    """Return one process per GPU; a process that RAS never knew has only an address, as `10.0.0.1<28028>`."""
    if "addr" in peer:
        return [(text(peer, "addr").partition("<")[0], -1, -1)]
    gpus = [gpu for gpu in items(peer, "cuda_devs")[:64] if type(gpu) is int]
    return [(text(peer, "host"), _signed(peer, "pid"), gpu) for gpu in gpus]


def _objects(data: bytes, *, tally: ParseErrors) -> Iterator[dict[str, Any]]:
    """Parse concatenated JSON objects, with any text between them."""
    decoder = json.JSONDecoder()
    recorded = most_values(whole_document(data)).decode(errors="replace")
    at = recorded.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(recorded, at)
        except (ValueError, RecursionError):
            tally.add(SOURCE, "not JSON")
            end = at + 1
            found = None
        if isinstance(found, dict):
            yield found
        at = recorded.find("{", end)
