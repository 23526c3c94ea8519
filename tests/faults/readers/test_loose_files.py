"""A folder of what a stopped job left is read without a description of the job."""

import json
import pickle
from typing import Any

import pytest

from faults.observations import Collective, DeviceCounter, OperationCounts
from faults.readers import ParseErrors, Recording, read_loose
from faults.readers.flight import Dump, parse_dump
from faults.readers.loose_files import HEAD_BYTES, FileKind, LooseFile, kind_of, rank_of_dump
from faults.replay import replay
from fleet.documents import RuleError
from tests.faults.readers import made

DUMP = json.dumps(made.dump(made.entry())).encode()
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


def ras(counts: list[int], *, missing: int | None = None) -> bytes:
    """Return a reply of RAS with one communicator and the number of all_reduce that each rank has launched."""
    ranks = [
        {
            "rank": rank,
            "host": f"gpu-{rank // 2}",
            "pid": 100 + rank,
            "cuda_dev": rank % 2,
            "status": {},
            "collective_counts": {"AllReduce": count},
        }
        for rank, count in enumerate(counts)
        if rank != missing
    ]
    communicator = {"hash": "0xa", "secondary_hash": "0xb", "size": len(counts), "ranks": ranks}
    return json.dumps({"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [communicator]}).encode()


def inspector(rank: int, *, ranks: int) -> bytes:
    header = {"id": "0xa", "rank": rank, "n_ranks": ranks, "nnodes": 1}
    metadata = {
        "inspector_output_format_version": "v4.0",
        "dump_timestamp_us": int(made.T_GO_S * 1e6),
        "hostname": "gpu-7",
    }
    stamps = {"coll_start_ts": int(made.T_GO_S * 1e6) - 900, "coll_stop_ts": int(made.T_GO_S * 1e6) - 100}
    perf = {
        "coll": "AllReduce",
        "coll_sn": 4,
        "coll_msg_size_bytes": 8,
        "coll_exec_time_us": 800,
        "event_trace_ts": stamps,
    }
    return json.dumps({"header": header, "metadata": metadata, "coll_perf": perf}).encode() + b"\n"


def read(dumps: dict[int, dict[str, Any]], **others: tuple[FileKind, bytes]) -> Recording:
    tally = ParseErrors()
    parsed = [(rank, parse_dump(json.dumps(dump).encode(), tally=tally)) for rank, dump in dumps.items()]
    files = [LooseFile(name, kind, content) for name, (kind, content) in others.items()]
    return read_loose(parsed, files, tally=tally)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("_dump_3", DUMP, FileKind.DUMP),
        ("_dump_3.json", DUMP, FileKind.DUMP),
        ("nccl_trace_rank_3", pickle.dumps(made.dump(made.entry()), protocol=2), FileKind.DUMP),
        ("my_job.trace.12", DUMP, FileKind.DUMP),
        ("nccl_trace_rank_3", b"cut off", FileKind.DUMP),  # counted as damaged
        ("notes.json", DUMP, FileKind.DUMP),  # counted: without a rank
        ("dmesg", f"[   12.5] {XID}".encode(), FileKind.KERNEL_LOG),
        ("dmesg", f"[Sun Feb 23 16:24:18 2025] {XID}".encode(), FileKind.KERNEL_LOG),
        ("list.json", b"[ {}]", None),
        ("ras.json", ras([1, 1]), FileKind.RAS),
        ("ras.txt", b"OK\n" + ras([1, 1]), FileKind.RAS),
        ("gpu-7-pid12.log", inspector(0, ranks=2), FileKind.INSPECTOR),
        ("kern.log", XID.encode(), FileKind.KERNEL_LOG),
        ("fault_injection.log.json", b'"rank 3"', FileKind.KERNEL_LOG),
        ("settings.json", b'{"a": 1}', None),
        ("core.1234", b"\x7fELF\0\0", None),
        ("model_3.pickle", pickle.dumps([1.0]), None),
    ],
)
def test_a_file_is_known_by_its_content_and_a_dump_also_by_its_rank(
    name: str, content: bytes, kind: FileKind | None
) -> None:
    assert kind_of(name, content[:HEAD_BYTES]) is kind


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_3", 3),
        ("_dump_3.json", 3),
        ("nccl_trace_rank_1023", 1023),
        ("a.b_7.pkl", 7),
        ("my_job.trace.12", 12),
        ("job12_rank3_20251128", 3),
        ("notes", None),
        ("_dump_3.json.1", None),  # rotated
        ("_dump_20251128", None),
        ("_dump_3.json.bak", None),
    ],
)
def test_the_rank_is_the_number_at_the_end_of_the_name(name: str, rank: int | None) -> None:
    assert rank_of_dump(name) == rank


def test_the_dumps_describe_the_job() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3, 4, 5]"}}
    called_ns = int((made.T_GO_S + 2.0) * 1e9)
    recording = read({0: made.dump(made.entry(), made.entry(time_created_ns=called_ns), pg_config=config)})
    assert (recording.job.nodes, recording.job.rank_node) == (6, (0, 1, 2, 3, 4, 5))
    assert recording.t_go_s == pytest.approx(made.T_GO_S)
    assert [each.at_s for each in recording.observations] == [pytest.approx(2.0, abs=0.01)]


def test_hosts_come_from_ras_and_errors_of_devices_join_the_diagnosis() -> None:
    waits, idle = made.dump(made.waiting(collective_seq_id=2)), made.dump(made.entry())
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    dumps = {rank: (idle if rank == 2 else waits) | {"pg_config": config} for rank in range(4)}
    log = f"Nov 28 01:09:43 gpu-1 kernel: [1.0] {XID}\nNov 28 01:09:44 gpu-1 kernel: other\n".encode()
    recording = read(dumps, ras=(FileKind.RAS, ras([2, 2, 1, 2])), kern=(FileKind.KERNEL_LOG, log))
    assert recording.hosts == ("gpu-0", "gpu-0", "gpu-1", "gpu-1")
    assert recording.notes == ("Xid 79 on GPU 0000:9b:00 of gpu-1 (kern)",)
    assert sum(isinstance(each.values, DeviceCounter) for each in recording.observations) == 2  # ranks of the host
    (found,) = replay(recording.job, recording.observations)
    assert (found.rank, recording.host_of(found.rank)) == (2, "gpu-1")
    assert "xid 79 on 0000:9b:00" in found.reason


def test_a_kernel_log_that_is_named_after_its_host_needs_no_host_in_the_lines() -> None:
    log = f"[  12.5] {XID}\n".encode()
    recording = read({}, ras=(FileKind.RAS, ras([1, 1])), **{"dmesg-gpu-0.log": (FileKind.KERNEL_LOG, log)})
    assert recording.notes == ("Xid 79 on GPU 0000:9b:00 of gpu-0 (dmesg-gpu-0.log)",)


def test_an_error_of_an_unknown_host_is_reported_and_names_no_rank() -> None:
    recording = read({0: made.dump(made.entry())}, kern=(FileKind.KERNEL_LOG, f"{XID}\n".encode()))
    assert recording.notes == ("Xid 79 on GPU 0000:9b:00 of an unknown host (kern)",)
    assert not any(isinstance(each.values, DeviceCounter) for each in recording.observations)


def test_the_rank_that_is_behind_in_one_reply_of_ras_is_named() -> None:
    recording = read({}, ras=(FileKind.RAS, ras([7, 7, 6, 7])))
    assert sum(isinstance(each.values, OperationCounts) for each in recording.observations) == 4
    assert [each.rank for each in replay(recording.job, recording.observations)] == [2]


def test_equal_counts_of_ras_are_no_fault() -> None:
    recording = read({}, ras=(FileKind.RAS, ras([7, 7])))
    assert replay(recording.job, recording.observations) == ()


RAS_TEXT = """
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 6650
  1 rank has launched up to operation 6649
  Rank 2 -- GPU 2 managed by process 483072 on node 172.16.64.210
"""


def test_the_text_of_ras_names_the_rank_behind_and_its_host() -> None:
    assert kind_of("ras.txt", RAS_TEXT.encode()) is FileKind.RAS_TEXT
    recording = read({}, ras=(FileKind.RAS_TEXT, RAS_TEXT.encode()))
    (found,) = replay(recording.job, recording.observations)
    assert (found.rank, recording.host_of(found.rank), found.isolate) == (2, "172.16.64.210", False)


def test_ranks_without_data_in_the_text_of_ras_are_notes() -> None:
    text = RAS_TEXT + "\n#0-1 (cf26) INCOMPLETE\n  Missing communicator data from 1 rank\n  The missing rank: 3\n"
    recording = read({}, ras=(FileKind.RAS_TEXT, text.encode()))
    assert recording.notes == ("NCCL RAS has no data of rank 3 of communicator cf26",)


def test_counts_of_ras_without_their_ranks_are_counted_as_malformed() -> None:
    text = RAS_TEXT.replace("  Rank 2 --", "  Node 2 --")
    recording = read({0: made.dump(made.entry())}, ras=(FileKind.RAS_TEXT, text.encode()))
    assert recording.malformed == {}  # of a communicator of another size than the job
    with pytest.raises(RuleError, match="1 x ras: counts without their ranks"):
        read({}, ras=(FileKind.RAS_TEXT, text.encode()))
    outside = RAS_TEXT.replace("Rank 2 --", "Rank 7 --")
    with pytest.raises(RuleError, match="1 x ras: counts without their ranks"):
        read({}, ras=(FileKind.RAS_TEXT, outside.encode()))


def test_a_folder_in_which_nothing_could_be_read_is_no_healthy_job() -> None:
    with pytest.raises(RuleError, match=r"no usable .*1 x ras: not JSON"):
        read({}, ras=(FileKind.RAS, b'{"communicators": [{"size": 4, '))


def test_an_inspector_file_is_of_its_rank_in_the_whole_job() -> None:
    recording = read({}, log=(FileKind.INSPECTOR, inspector(1, ranks=2)))
    assert recording.job.nodes == 2
    assert recording.hosts == (None, "gpu-7")
    assert [(each.rank, each.values.seq) for each in recording.observations if isinstance(each.values, Collective)] == [
        (1, 4)
    ]


def test_the_newest_dump_of_a_rank_counts() -> None:
    def dumps(*, called_s: float, behind: int) -> list[tuple[int, Dump]]:
        called = {"time_created_ns": int((made.T_GO_S + called_s) * 1e9), "pg_id": 0}
        made_of = {
            rank: made.dump(made.entry(**called) if rank == behind else made.waiting(collective_seq_id=2, **called))
            for rank in range(3)
        }
        return [(rank, parse_dump(json.dumps(each).encode(), tally=ParseErrors())) for rank, each in made_of.items()]

    old, new = dumps(called_s=0.0, behind=1), dumps(called_s=50.0, behind=2)
    for order in ((*old, *new), (*new, *old)):
        recording = read_loose(order, (), tally=ParseErrors())
        assert [each.rank for each in replay(recording.job, recording.observations)] == [2]


def test_a_dump_of_an_earlier_run_is_left_out() -> None:
    early_ns = int((made.T_GO_S - 500.0) * 1e9)
    stale = made.waiting(collective_seq_id=91, time_created_ns=early_ns, time_discovered_started_ns=early_ns)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    waits = made.dump(made.waiting(collective_seq_id=2), pg_config=config)
    recording = read({0: waits, 1: waits, 2: made.dump(stale, pg_config=config), 3: waits})
    assert recording.malformed == {"fr: dump of an earlier run": 1}
    found = replay(recording.job, recording.observations)
    assert not {0, 1, 3} & {each.rank for each in found}


@pytest.mark.parametrize("called_ns", [5, 9 * 10**18])
def test_one_dump_with_a_wrong_clock_does_not_disturb_the_others(called_ns: int) -> None:
    waits, config = made.waiting(collective_seq_id=2), {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    dumps = {0: made.dump(waits | {"time_created_ns": called_ns}), 1: made.dump(made.entry()), 2: made.dump(waits)}
    recording = read({rank: dump | {"pg_config": config} for rank, dump in dumps.items()})
    (found,) = replay(recording.job, recording.observations)
    assert found.rank == 1
    assert abs(found.detected_s) < 1e6


def test_a_dump_of_a_rank_outside_its_groups_is_left_out() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    recording = read({rank: made.dump(made.entry(), pg_config=config) for rank in (0, 1, 99)})
    assert recording.job.nodes == 2
    assert recording.malformed == {"fr: dump of a rank outside its groups": 1}


def test_a_rank_without_data_in_ras_has_no_count() -> None:
    reply = json.loads(ras([7, 7, 7, 7], missing=3))
    lost = {"rank": 3, "host": "gpu-1", "pid": 103, "cuda_dev": 1, "status": {"unresponsive": True}}
    reply["communicators"][0]["missing_ranks"] = [lost]
    recording = read({}, ras=(FileKind.RAS, json.dumps(reply).encode()))
    assert replay(recording.job, recording.observations) == ()


@pytest.mark.parametrize("kind", [FileKind.RAS, FileKind.RAS_TEXT])
def test_a_file_that_is_too_large_is_counted_and_the_others_are_read(kind: FileKind) -> None:
    recording = read({0: made.dump(made.entry())}, large=(kind, b" " * (33 << 20)))
    assert recording.malformed == {f"{kind.value}: too large": 1}


def test_a_host_is_not_taken_for_another_with_a_longer_name() -> None:
    files = {"dmesg-gpu-00.log": (FileKind.KERNEL_LOG, f"[1.0] {XID}\n".encode())}
    recording = read({}, ras=(FileKind.RAS, ras([1, 1])), **files)
    assert recording.notes == ("Xid 79 on GPU 0000:9b:00 of an unknown host (dmesg-gpu-00.log)",)


def test_files_without_ranks_are_refused() -> None:
    with pytest.raises(RuleError, match="holds no usable dump"):
        read({}, kern=(FileKind.KERNEL_LOG, XID.encode()))
