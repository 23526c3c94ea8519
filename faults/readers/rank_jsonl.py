"""A rank's own lines: heartbeats and collectives.  Schema: docs/explanation/faults/observations.md"""

from faults.observations import Collective, Heartbeat, Observation, PointToPoint
from faults.readers.fields import (
    MAX_INDEX,
    Record,
    moment,
    optional_text,
    optional_whole,
    parse_record,
    text,
    whole,
)
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError


def parse_heartbeat(line: bytes, *, rank: int, job_map: JobMap) -> list[Observation]:
    """Parse `{"t", "rank", "enq", "done", "op", "step", "phase"}`."""
    record = parse_record(line)
    if whole(record, "rank", maximum=MAX_INDEX) != rank:
        raise MalformedError("of another rank than its file")
    entered, finished = whole(record, "enq"), whole(record, "done")
    if finished > entered:
        raise MalformedError("done is more than enq")
    beat = Heartbeat(
        entered=entered,
        finished=finished,
        op=optional_text(record, "op"),
        step=whole(record, "step"),
        phase=text(record, "phase"),
    )
    return [Observation(job_map.time(moment(record, "t")), job_map.node(rank), beat, rank=rank)]


def parse_collective(line: bytes, *, rank: int, job_map: JobMap) -> list[Observation]:
    """Parse `{"seq", "op", "n", "t0", "t1", "step"}`, or a point-to-point exchange.

    A finished operation becomes known when it finishes.  A line with t1 null is known at the arrival.
    """
    record = parse_record(line)
    if record.get("op") == "p2p":
        return [_pass(record, rank=rank, job_map=job_map)]
    arrived_s = job_map.time(moment(record, "t0"))
    finished_s = None if record.get("t1") is None else job_map.time(moment(record, "t1"))
    if finished_s is not None and finished_s < arrived_s:
        raise MalformedError("t1 is before t0")
    values = Collective(
        seq=whole(record, "seq"),
        op=text(record, "op"),
        size_bytes=whole(record, "n"),
        arrived_s=arrived_s,
        finished_s=finished_s,
        step=optional_whole(record, "step"),
        group=text(record, "group", missing=""),
    )
    return [Observation(arrived_s if finished_s is None else finished_s, job_map.node(rank), values, rank=rank)]


def _pass(record: Record, *, rank: int, job_map: JobMap) -> Observation:
    source, to = whole(record, "src", maximum=MAX_INDEX), whole(record, "dst", maximum=MAX_INDEX)
    called_s = job_map.time(moment(record, "t0"))
    received_s, sent_s = job_map.time(moment(record, "tr")), job_map.time(moment(record, "ts"))
    if min(received_s, sent_s) < called_s:
        raise MalformedError("tr or ts is before t0")
    values = PointToPoint(
        source=source,
        to=to,
        size_bytes=whole(record, "n"),
        called_s=called_s,
        received_s=received_s,
        sent_s=sent_s,
        step=optional_whole(record, "step"),
    )
    return Observation(max(received_s, sent_s), job_map.node(rank), values, rank=rank, peer=job_map.node(source))
