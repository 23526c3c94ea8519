"""Speed and memory of the readers: the public recordings, a large Flight Recorder dump, and a line of one gigabyte.

`tests/faults/readers` and `tests/fleet/test_safe_pickle.py` cover damaged and hostile input.
"""

import pickle
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.harness import SHARED_DATA, Row
from faults.readers import ParseErrors, read
from faults.readers.flight import parse_dump
from faults.readers.lines import split_lines

GIGABYTE = 1 << 30
ENTRIES = 2000  # of a large dump; torch's buffer is usually of that size


def run() -> list[Row]:
    """Measure memory first, because the process keeps its peak."""
    rows = [_gigabyte_line()]
    folders = [path.parent for path in sorted((SHARED_DATA / "faults").glob("*/run.json"))]
    rows += [_speed(folders)] if folders else [{"case": "public recordings: not at hand, left out"}]
    return [*rows, _large_dump()]


def _speed(folders: Sequence[Path]) -> Row:
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    size_mb = sum(len(each) for folder in files for each in folder.values()) / 1e6
    started = time.process_time()
    recordings = [read(each) for each in files]
    took_s = time.process_time() - started
    return {
        "case": f"{len(files)} public recordings",
        "size_mb": size_mb,
        "core_s": took_s,
        "mb_per_core_s": size_mb / took_s,
        "observations": sum(len(each.observations) for each in recordings),
        "malformed": sum(sum(each.malformed.values()) for each in recordings),
    }


def _large_dump() -> Row:
    frames = [{"name": f"call_{index}", "filename": f"/job/train_{index}.py", "line": index} for index in range(20)]
    entries = [
        {
            "pg_id": index % 4,
            "process_group": (str(index % 4), "mesh"),
            "collective_seq_id": index // 4 + 1,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_795_000_000_000_000_000 + index,
            "state": "completed",
            "is_p2p": False,
            "retired": True,
            "frames": list(frames),
        }
        for index in range(ENTRIES)
    ]
    dump = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}, protocol=2)
    started = time.process_time()
    found = parse_dump(dump, tally=ParseErrors())
    return {
        "case": f"pickled dump of {sum(stream.entered for stream in found.streams)} operations with stacks",
        "size_mb": len(dump) / 1e6,
        "core_s": time.process_time() - started,
    }


def _gigabyte_line() -> Row:
    def chunks() -> Iterator[bytes]:
        chunk = b'{"t":' + b"[" * (1 << 18)
        for _ in range(GIGABYTE // len(chunk)):
            yield chunk
        yield b"\n{}\n"

    tally = ParseErrors()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    lines = list(split_lines(chunks(), source="coll", tally=tally))
    return {
        "case": "a line of one gigabyte, then a good one",
        "size_mb": round(GIGABYTE / 1e6),
        "core_s": time.process_time() - started,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024,
        "malformed": tally.total,
        "lines_read": len(lines),
    }
