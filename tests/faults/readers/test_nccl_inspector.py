"""Lines of NCCL Inspector: those with their own header, and those that follow a marker."""

import json
from typing import Any

import pytest

from faults.observations import Collective, OperationDuration
from faults.readers import ParseErrors, read
from faults.readers.job_map import JobMap
from faults.readers.nccl_inspector import InspectorLines
from faults.readers.parse_errors import MalformedError
from tests.faults.readers import made

PLACES = JobMap(3, (0, 1, 2), zero_s=made.T_GO_S)
DUMPED_S = 5.0
HEADER = {"id": "0x7f8c", "comm_name": "unknown", "rank": 1, "n_ranks": 3, "nnodes": 3}
METADATA = {
    "inspector_output_format_version": "v4.3",
    "git_rev": "",
    "rec_mechanism": "nccl_profiler_interface",
    "dump_timestamp_us": int((made.T_GO_S + DUMPED_S) * 1e6),
    "hostname": "node1",
    "pid": 99,
}
COLLECTIVE = {
    "coll": "AllReduce",
    "coll_algo": "RING",
    "coll_proto": "LL",
    "coll_sn": 7,
    "coll_msg_size_bytes": 4096,
    "coll_exec_time_us": 250,
    "coll_timing_source": "kernel_gpu",
    "coll_algobw_gbs": 100.0,
    "coll_busbw_gbs": 175.5,
}
SEND = {
    "p2p": "Send",
    "p2p_sn": 3,
    "p2p_peer": 2,
    "p2p_msg_size_bytes": 512,
    "p2p_exec_time_us": 20,
    "p2p_busbw_gbs": 12.5,
}
PROXY = {
    "record_type": "proxy_op",
    "record_sn": 42,
    "parent_type": "coll",
    "parent_sn": 7,
    "rank": 1,
    "channel_id": 0,
    "peer": 2,
    "direction": "send",
    "trans_size_bytes": 1_000_000,
}


def stamps(**at_s: float) -> dict[str, int]:
    return {name: int((made.T_GO_S + value) * 1e6) for name, value in at_s.items()}


def marker(*, size: int = 3, coll: int = 0, p2p: int = 0, proxy: int = 0) -> dict[str, Any]:
    stats = {"coll_records": coll, "p2p_records": p2p, "proxy_records": proxy, "coll_dropped_total": 5}
    return {"header": {**HEADER, "n_ranks": size}, "metadata": METADATA, "dump_stats": stats}


def parsed(*records: dict[str, Any], rank: int = 1) -> list[Any]:
    lines = InspectorLines(rank=rank, job_map=PLACES)
    return [observation for record in records for observation in lines.parse(json.dumps(record).encode())]


def test_a_line_with_its_own_header_is_read() -> None:
    (observation,) = parsed({"header": HEADER, "metadata": METADATA, "coll_perf": COLLECTIVE})

    assert (observation.at_s, observation.node, observation.rank, observation.peer) == (DUMPED_S, 1, 1, None)
    assert observation.values == OperationDuration("0x7f8c", 7, "AllReduce", 4096, 0.00025, 175.5)


def test_lines_after_a_marker_use_its_header() -> None:
    observations = parsed(marker(coll=1, p2p=1), {"coll_perf": COLLECTIVE}, {"p2p_perf": SEND})

    assert [each.values.op for each in observations] == ["AllReduce", "Send"]
    assert [each.peer for each in observations] == [None, 2]


def test_a_line_beyond_the_count_of_its_marker_is_refused() -> None:
    with pytest.raises(MalformedError, match="operation outside a dump"):
        parsed(marker(coll=1), {"coll_perf": COLLECTIVE}, {"coll_perf": COLLECTIVE})


def test_lines_after_a_malformed_marker_are_not_assigned_to_the_previous_marker() -> None:
    lines = InspectorLines(rank=1, job_map=PLACES)
    lines.parse(json.dumps(marker(coll=2)).encode())
    broken = marker(coll=1)
    broken["header"]["id"] = 5

    with pytest.raises(MalformedError, match="id is no short text"):
        lines.parse(json.dumps(broken).encode())
    with pytest.raises(MalformedError, match="operation outside a dump"):
        lines.parse(json.dumps({"coll_perf": COLLECTIVE}).encode())


def test_an_event_trace_gives_the_time_of_an_operation() -> None:
    trace = {
        **stamps(coll_start_ts=2.0, coll_stop_ts=2.001),
        "kernel_events": [
            {"channel_id": 0, **stamps(kernel_start_ts=2.1, kernel_stop_ts=2.25)},
            {"channel_id": 1, **stamps(kernel_start_ts=2.1, kernel_stop_ts=2.5)},
        ],
    }
    (observation,) = parsed(marker(coll=1), {"coll_perf": {**COLLECTIVE, "event_trace_ts": trace}})

    assert observation.at_s == DUMPED_S  # observed at the time of the dump
    assert observation.values == Collective(7, "AllReduce", 4096, 2.0, 2.5, group="0x7f8c")


def test_a_proxy_operation_gives_the_duration_for_one_peer() -> None:
    trace = stamps(proxy_op_start_ts=2.0, proxy_op_in_progress_ts=2.1, proxy_op_stop_ts=2.5)
    (observation,) = parsed(marker(proxy=2), {"proxy_trace": {**PROXY, "event_trace_ts": trace}})

    assert observation.peer == 2
    assert observation.values == OperationDuration("0x7f8c", 7, "proxy-send", 1_000_000, 0.5, 0.002)
    assert parsed(marker(proxy=1), {"proxy_trace": {**PROXY, "record_type": "proxy_step"}}) == []


def test_the_peer_in_a_smaller_communicator_has_no_job_rank() -> None:
    (observation,) = parsed(marker(size=2, p2p=1), {"p2p_perf": SEND})

    assert (observation.rank, observation.peer) == (1, None)


@pytest.mark.parametrize(
    ("record", "defect"),
    [
        ({}, "operation outside a dump"),
        ({"header": HEADER, "metadata": METADATA}, "neither an operation nor a marker"),
        (
            {"header": {**HEADER, "rank": 2}, "metadata": METADATA, "coll_perf": COLLECTIVE},
            "of another rank than its file",
        ),
        ({"header": HEADER, "metadata": {}, "coll_perf": COLLECTIVE}, "dump_timestamp_us is no number in range"),
        ({"header": HEADER, "metadata": METADATA, "coll_perf": []}, "coll_perf is no mapping"),
        (
            {"header": HEADER, "metadata": METADATA, "coll_perf": {**COLLECTIVE, "coll_exec_time_us": -1}},
            "coll_exec_time_us is no whole number in range",
        ),
        (
            {"header": HEADER, "metadata": METADATA, "coll_perf": {**COLLECTIVE, "coll_busbw_gbs": "fast"}},
            "coll_busbw_gbs is no number in range",
        ),
    ],
)
def test_malformed_lines_are_refused(record: dict[str, Any], defect: str) -> None:
    with pytest.raises(MalformedError, match=f"^{defect}$"):
        parsed(record)


def test_an_inspector_file_of_a_recording_is_read() -> None:
    records = [marker(coll=1), {"coll_perf": COLLECTIVE}, {"coll_perf": COLLECTIVE}]
    recording = read({"run.json": made.run(), "inspector_rank1.jsonl": made.lines(records)})

    assert len(recording.observations) == 1
    assert recording.malformed == {"inspector: operation outside a dump": 1}
    assert ParseErrors().total == 0
