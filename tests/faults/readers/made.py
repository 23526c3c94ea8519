"""A small recording made by the tests: three ranks, ten steps, in the schema that the recorder writes."""

import json
import os
from pathlib import Path
from typing import Any

# Recordings that are not part of the project. Tests that read them are skipped when they are absent.
PUBLIC = Path(
    os.environ.get("FLEETWRIGHT_FAULTS_DATA", Path(__file__).resolve().parents[4] / "shared" / "data" / "faults")
)

T_GO_S = 1_795_000_000.0
RANKS = 3
STEPS = 10
STEP_S = 0.5


def lines(records: list[dict[str, Any]]) -> bytes:
    """The content of a JSON Lines file with these records."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def run(**changed: Any) -> bytes:
    """run.json."""
    return json.dumps({"n": RANKS, "t_go": T_GO_S, "dur": STEPS * STEP_S, "sample_hz": 4, **changed}).encode()


def collectives(rank: int) -> list[dict[str, Any]]:
    """An all_reduce and a ring pass in each step; higher ranks arrive later."""
    found: list[dict[str, Any]] = []
    for step in range(STEPS):
        at_s = T_GO_S + step * STEP_S + rank / 64
        found.append({"seq": step + 1, "op": "all_reduce", "n": 1024, "t0": at_s, "t1": at_s + 0.25, "step": step})
        source, to = (rank - 1) % RANKS, (rank + 1) % RANKS
        passed = {"op": "p2p", "src": source, "dst": to, "n": 64, "t0": at_s + 0.25, "step": step}
        found.append({**passed, "tr": at_s + 0.28125, "ts": at_s + 0.265625})
    return found


def heartbeats(rank: int) -> list[dict[str, Any]]:
    """One heartbeat in each step."""
    return [
        {
            "t": T_GO_S + step * STEP_S + 0.125,
            "rank": rank,
            "enq": step + 1,
            "done": step,
            "op": "all_reduce",
            "step": step,
            "phase": "comm",
        }
        for step in range(STEPS)
    ]


def socket_polls(node: int) -> list[dict[str, Any]]:
    """Two socket polls in each step, with both peers."""
    peers = [peer for peer in range(RANKS) if peer != node]
    return [
        {"t": T_GO_S + poll * STEP_S / 2, "node": node, "c": [[peer, 1, poll * 1000, *range(17)] for peer in peers]}
        for poll in range(2 * STEPS)
    ]


def folder(**run_changed: Any) -> dict[str, bytes]:
    """All files of the recording."""
    files = {"run.json": run(**run_changed)}
    for index in range(RANKS):
        files[f"coll_rank{index}.jsonl"] = lines(collectives(index))
        files[f"hb_rank{index}.jsonl"] = lines(heartbeats(index))
        files[f"tcp_node{index}.jsonl"] = lines(socket_polls(index))
    return files


def entry(**changed: Any) -> dict[str, Any]:
    """An entry of a Flight Recorder's dump, as NCCL's process group makes it."""
    return {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": int(T_GO_S * 1e9),
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": int(T_GO_S * 1e9) + 1000,
        "time_discovered_completed_ns": int(T_GO_S * 1e9) + 2000,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
        **changed,
    }


def waiting(**changed: Any) -> dict[str, Any]:
    """An operation that has started on the GPU and does not end."""
    unfinished = {"state": "started", "time_discovered_completed_ns": None, "retired": False}
    return entry(**{**unfinished, **changed})


def gloo(*, seq: int, retired: bool, **changed: Any) -> dict[str, Any]:
    """An operation of gloo, which never reports its start or end."""
    unknown = {"state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
    names = {"profiling_name": "gloo:all_reduce", "collective_seq_id": seq, "retired": retired}
    return entry(**{**unknown, **names, **changed})


def dump(*entries: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A dump with these entries."""
    return {
        "version": "2.10",
        "comm_lib_version": "2.28.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "pg_status": {
            "0": {"last_enqueued_collective": 1, "last_started_collective": 1, "last_completed_collective": 1}
        },
        "entries": list(entries),
        **changed,
    }
