"""NCCL Inspector's JSON lines: finished collectives, point-to-point operations and proxy transfers.

Written by plugins/profiler/inspector of NCCL.  Up to format v4.2 each line has its own header; from v4.3 on a marker
line with `dump_stats` carries it for the number of lines that it announces.  Only finished operations are written, so a
hang is silence.  With the event trace (NCCL_INSPECTOR_DUMP_VERBOSE=1) the time of an operation is known, otherwise only
its duration; everything becomes known at the dump.
"""

from dataclasses import dataclass
from typing import Final

from faults.observations import Collective, Observation, OperationDuration
from faults.readers.fields import MAX_INDEX, Record, items, mapping, number, parse_record, text, whole
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError

MAX_CHANNELS: Final = 1024
RECORDS: Final = ("coll_records", "p2p_records", "proxy_records")
EVERY_LINE: Final = -1  # the header is the line's own


@dataclass(slots=True)
class _Dump:
    group: str
    size: int
    at_s: float
    left: int  # lines that still belong to it


class InspectorLines:
    """A reader of the lines of one process, which is one rank of the job."""

    def __init__(self, *, rank: int, job_map: JobMap) -> None:
        self._rank = rank
        self._places = job_map
        self._dump: _Dump | None = None

    def parse(self, line: bytes) -> list[Observation]:
        record = parse_record(line)
        if "dump_stats" in record:
            self._dump = None  # an unreadable marker must not leave its lines to the one before
            self._dump = self._header(record, left=_announced(mapping(record, "dump_stats")))
            return []
        dump = self._header(record, left=EVERY_LINE) if "header" in record else self._next()
        if "coll_perf" in record:
            return [self._collective(mapping(record, "coll_perf"), dump)]
        if "p2p_perf" in record:
            return [self._point_to_point(mapping(record, "p2p_perf"), dump)]
        proxy = mapping(record, "proxy_trace")
        if not proxy:
            raise MalformedError("neither an operation nor a marker")
        return [self._proxy(proxy, dump)] if proxy.get("record_type") == "proxy_op" else []

    def _next(self) -> _Dump:
        if self._dump is None or self._dump.left <= 0:
            raise MalformedError("operation outside a dump")
        self._dump.left -= 1
        return self._dump

    def _header(self, record: Record, *, left: int) -> _Dump:
        header, metadata = mapping(record, "header"), mapping(record, "metadata")
        comm_rank, size = whole(header, "rank", maximum=MAX_INDEX), whole(header, "n_ranks", maximum=MAX_INDEX)
        if size == len(self._places.rank_node) and comm_rank != self._rank:
            raise MalformedError("of another rank than its file")
        return _Dump(
            group=text(header, "id"),
            size=size,
            at_s=self._places.time(number(metadata, "dump_timestamp_us") / 1e6),
            left=left,
        )

    def _observation(
        self, at_s: float, values: OperationDuration | Collective, *, peer: int | None = None
    ) -> Observation:
        return Observation(at_s, self._places.node(self._rank), values, rank=self._rank, peer=peer)

    def _collective(self, perf: Record, dump: _Dump) -> Observation:
        took_s = whole(perf, "coll_exec_time_us") / 1e6
        seq, op, size_bytes = whole(perf, "coll_sn"), text(perf, "coll"), whole(perf, "coll_msg_size_bytes")
        trace = mapping(perf, "event_trace_ts")
        if not trace:
            took = OperationDuration(dump.group, seq, op, size_bytes, took_s, number(perf, "coll_busbw_gbs"))
            return self._observation(dump.at_s, took)
        arrived_s = self._stamp(trace, "coll_start_ts")
        stops = [self._stamp(trace, "coll_stop_ts")]
        channels = items({"kernel_events": [], **trace}, "kernel_events")[:MAX_CHANNELS]
        stops += [self._stamp(each, "kernel_stop_ts") for each in channels if isinstance(each, dict)]
        finished_s = max(stops)
        if finished_s < arrived_s:
            raise MalformedError("coll_stop_ts is before coll_start_ts")
        values = Collective(seq, op, size_bytes, arrived_s, finished_s, group=dump.group)
        return self._observation(max(dump.at_s, finished_s), values)

    def _point_to_point(self, perf: Record, dump: _Dump) -> Observation:
        values = OperationDuration(
            group=dump.group,
            seq=whole(perf, "p2p_sn"),
            op=text(perf, "p2p"),
            size_bytes=whole(perf, "p2p_msg_size_bytes"),
            took_s=whole(perf, "p2p_exec_time_us") / 1e6,
            bus_gb_per_s=number(perf, "p2p_busbw_gbs"),
        )
        peer = self._peer(whole(perf, "p2p_peer", maximum=MAX_INDEX), dump)
        return self._observation(dump.at_s, values, peer=peer)

    def _proxy(self, proxy: Record, dump: _Dump) -> Observation:
        """Convert one channel's transfer with one peer, by the CPU's clock: the only per-peer times of NCCL."""
        trace = mapping(proxy, "event_trace_ts")
        took_s = self._stamp(trace, "proxy_op_stop_ts") - self._stamp(trace, "proxy_op_start_ts")
        if took_s < 0:
            raise MalformedError("proxy_op_stop_ts is before proxy_op_start_ts")
        size_bytes = whole(proxy, "trans_size_bytes")
        values = OperationDuration(
            group=dump.group,
            seq=whole(proxy, "parent_sn"),
            op=f"proxy-{text(proxy, 'direction')}",
            size_bytes=size_bytes,
            took_s=took_s,
            bus_gb_per_s=size_bytes / took_s / 1e9 if took_s else 0.0,
        )
        peer = self._peer(whole(proxy, "peer", maximum=MAX_INDEX), dump)
        return self._observation(dump.at_s, values, peer=peer)

    def _peer(self, comm_rank: int, dump: _Dump) -> int | None:
        """Return the peer's node, in the communicator of all ranks; smaller ones number ranks differently."""
        return self._places.node(comm_rank) if dump.size == len(self._places.rank_node) else None

    def _stamp(self, trace: Record, key: str) -> float:
        return self._places.time(number(trace, key) / 1e6)


def _announced(stats: Record) -> int:
    return sum(whole(stats, key, missing=0) for key in RECORDS)
