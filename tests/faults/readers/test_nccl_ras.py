"""NCCL RAS responses: counts of started operations per rank, lost ranks, and job ranks in smaller communicators."""

import json
from typing import Any

from faults.observations import Observation, OperationCounts
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from faults.readers.nccl_ras import Communicators, parse_ras

HOSTS = {"10.0.0.1": 0, "10.0.0.2": 1}
PLACES = JobMap(2, (0, 0, 1, 1), hosts=HOSTS)


def rank(index: int, job_rank: int, **changed: Any) -> dict[str, Any]:
    return {
        "rank": index,
        "host": f"10.0.0.{job_rank // 2 + 1}",
        "pid": 500 + job_rank,
        "cuda_dev": job_rank % 2,
        "nvml_dev": job_rank % 2,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
        },
        "collective_counts": {"Broadcast": 1, "AllReduce": 40},
        **changed,
    }


def communicator(*ranks: Any, size: int, missing: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "hash": f"0x{size}",
        "secondary_hash": "0x1:0x2",
        "size": size,
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": list(ranks),
        "missing_ranks": list(missing),
    }


def lost(index: int, job_rank: int, *, dead: bool, unresponsive: bool) -> dict[str, Any]:
    found = rank(index, job_rank, status={"unresponsive": unresponsive, "considered_dead": dead})
    del found["collective_counts"]
    return found


def ras_response(*communicators: Any) -> bytes:
    return json.dumps({"nccl_version": "2.30.7", "communicators": list(communicators), "ras": {}}).encode()


def recorded(data: bytes, *, tally: ParseErrors | None = None, job_map: JobMap = PLACES) -> list[Observation]:
    return list(
        parse_ras(data, at_s=3.0, job_map=job_map, members=Communicators(job_map), tally=tally or ParseErrors())
    )


def test_a_response_gives_the_counts_of_each_rank() -> None:
    observations = recorded(b"OK\n" + ras_response(communicator(*(rank(index, index) for index in range(4)), size=4)))

    assert [(each.node, each.rank) for each in observations] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert observations[0].values == OperationCounts("0x4/0x1:0x2", 4, (("AllReduce", 40), ("Broadcast", 1)), "ok")


def test_ranks_of_a_smaller_communicator_are_resolved_by_the_global_one() -> None:
    all_ranks = communicator(*(rank(index, index) for index in range(4)), size=4)
    pair = communicator(rank(0, 1), rank(1, 3), size=2)

    observations = recorded(ras_response(pair, all_ranks))

    assert [
        each.rank for each in observations if isinstance(each.values, OperationCounts) and each.values.size == 2
    ] == [1, 3]


def test_an_unknown_rank_still_has_its_node() -> None:
    assert [(each.node, each.rank) for each in recorded(ras_response(communicator(rank(0, 3), size=2)))] == [(1, None)]


def test_ras_status_fields_give_the_state_of_a_rank() -> None:
    flagged = rank(0, 0)["status"] | {"abort_flag": True}
    failed = rank(0, 0)["status"] | {"async_error": 6}
    busy = rank(0, 0)["status"] | {"async_error": 7}
    found = communicator(
        rank(0, 0, status=flagged),
        rank(1, 1, status=failed),
        rank(2, 2, status=busy),
        size=6,
        missing=(
            lost(3, 3, dead=False, unresponsive=False),
            lost(4, 3, dead=False, unresponsive=True),
            lost(5, 3, dead=True, unresponsive=True),
        ),
    )

    states = [each.values.state for each in recorded(ras_response(found)) if isinstance(each.values, OperationCounts)]
    assert states == ["aborted", "error", "ok", "missing", "unresponsive", "dead"]


def test_malformed_parts_are_counted_and_the_rest_is_read() -> None:
    tally = ParseErrors()
    found = communicator(
        rank(0, 0), 5, rank(1, 1, collective_counts={"AllReduce": -4}), rank(9, 2, host="10.9.9.9"), size=4
    )

    assert [each.rank for each in recorded(ras_response(found, "x"), tally=tally)] == [0]
    assert tally.counts() == {
        "ras: AllReduce is no whole number in range": 1,
        "ras: communicator is no mapping": 1,
        "ras: of a host outside the job": 1,
        "ras: rank is no mapping": 1,
    }


def test_an_invalid_response_is_counted() -> None:
    for data in (b"", b"ERROR: Unknown command", b"{", b"{}", b"[" * 1000, b'{"communicators": 5}'):
        tally = ParseErrors()
        assert recorded(data, tally=tally) == []
        assert tally.total == 1
