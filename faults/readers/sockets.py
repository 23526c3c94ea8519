"""The lines of a node's socket polls: kernel counters per peer.  Schema: docs/explanation/faults/observations.md"""

from typing import Any

from faults.observations import Observation, Socket, SocketPoll
from faults.readers.fields import MAX, MAX_INDEX, items, moment, parse_record, whole
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError, ParseErrors

SOURCE = "tcp"
COLUMNS = 1 + len(Socket._fields)  # the peer, then the kernel's counters


def parse_poll(line: bytes, *, node: int, job_map: JobMap, tally: ParseErrors) -> list[Observation]:
    """Parse `{"t", "node", "c": [[peer, connections, ...], ...]}`: the poll, then each readable peer.

    A peer of null is all hosts outside the job.  Additional columns of a later writer are ignored.
    """
    record = parse_record(line)
    if whole(record, "node", most=MAX_INDEX) != node:
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
