"""The files of a recording folder by name, each with its line parser.  A live tail uses the same parsers.

Schema: docs/explanation/faults/observations.md
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from faults.observation_jsonl import KINDS, from_values
from faults.observations import Observation, Socket, SocketPoll, on_clock_of, times_of
from faults.readers.fields import MAX, MAX_INDEX, items, moment, optional_whole, parse_record, text, whole
from faults.readers.job_map import JobMap
from faults.readers.lines import LineReader, Splitter
from faults.readers.nccl_inspector import InspectorLines
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.rank_jsonl import parse_collective, parse_heartbeat
from faults.readers.run import RUN

SOURCE = "tcp"
COLUMNS = 1 + len(Socket._fields)  # the peer, then the kernel's counters
_LINES = re.compile(r"(coll_rank|hb_rank|tcp_node|seen_node|inspector_rank)(\d{1,6})\.jsonl")
_DUMP = re.compile(r"(?:fr_rank|fr_|st_|nccl_trace_rank_|comm_lib_trace_rank_)(\d{1,6})(?:\.json|\.pickle)?")


def parse_poll(line: bytes, *, node: int, job_map: JobMap, tally: ParseErrors) -> list[Observation]:
    """Parse `{"t", "node", "c": [[peer, connections, ...], ...]}`: the poll, then each readable peer.

    A peer of null is all hosts outside the job.  Additional columns of a later writer are ignored.
    """
    record = parse_record(line)
    if whole(record, "node", maximum=MAX_INDEX) != node:
        raise MalformedError("of another node than its file")
    job_map.known(node)
    at_s = job_map.time(moment(record, "t"))
    rows = items(record, "c")
    found = [Observation(at_s, node, SocketPoll(peers=len(rows)))]
    for row in rows:
        try:
            found.append(_row(row, at_s=at_s, node=node, nodes=job_map.nodes))
        except MalformedError as error:  # no context manager: this runs once per peer and poll
            tally.add(SOURCE, str(error))
    return found


def _row(row: Any, *, at_s: float, node: int, nodes: int) -> Observation:
    if not isinstance(row, list) or len(row) < COLUMNS:
        raise MalformedError("row is too short")
    peer, values = row[0], row[1:COLUMNS]
    if set(map(type, values)) != {int} or min(values) < 0 or max(values) > MAX:
        raise MalformedError("row has a value that is no whole number in range")
    if peer is not None and (type(peer) is not int or not 0 <= peer < nodes):
        raise MalformedError("row of a node outside the job")
    return Observation(at_s, node, Socket._make(values), None, peer)


def line_reader(name: str, *, job_map: JobMap, tally: ParseErrors) -> LineReader | None:
    """Return the reader of a file of lines in a recording folder; None for other files."""
    match = _LINES.fullmatch(name)
    if match is None:
        return None
    kind, index = match[1], int(match[2])
    source = kind.split("_")[0]
    parse: dict[str, Callable[[bytes], list[Observation]]] = {
        "coll_rank": partial(parse_collective, rank=index, job_map=job_map),
        "hb_rank": partial(parse_heartbeat, rank=index, job_map=job_map),
        "tcp_node": partial(parse_poll, node=index, job_map=job_map, tally=tally),
        "seen_node": partial(parse_other, node=index, job_map=job_map),
        "inspector_rank": InspectorLines(rank=index, job_map=job_map).parse,
    }
    return LineReader(source, parse[kind], Splitter(source=source, tally=tally), tally)


def dump_rank(name: str) -> int | None:
    match = _DUMP.fullmatch(name)
    return int(match[1]) if match else None


def parse_other(line: bytes, *, node: int, job_map: JobMap) -> list[Observation]:
    """Parse `{"t", "node", "rank", "peer", "kind", "v"}`: a kind without a file of its own; "v" are its values."""
    record = parse_record(line)
    if whole(record, "node", maximum=MAX_INDEX) != node:
        raise MalformedError("of another node than its file")
    rank, peer = optional_whole(record, "rank"), optional_whole(record, "peer")
    kind = KINDS.get(text(record, "kind").lower())
    if kind is None:
        raise MalformedError("of an unknown kind")
    try:
        values = from_values(kind, record.get("v"))
    except ValueError as error:
        raise MalformedError("v are not the kind's values") from error
    observation = on_clock_of(Observation(moment(record, "t"), node, values, rank, peer), job_map.zero_s)
    for at_s in times_of(observation):
        job_map.near(at_s)
    for index in (node, peer):
        job_map.known(0 if index is None else index)
    for index in observation.ranks:
        job_map.node(index)
    return [observation]


def is_recorded(name: str) -> bool:
    """Return whether a file of this name belongs to a recording."""
    return name == RUN or _LINES.fullmatch(name) is not None or dump_rank(name) is not None
