"""Flight Recorder dumps of stopped jobs: how often the rank at fault is named, and how fast a large folder is read.

Generated jobs have up to 1,024 ranks in four kinds of parallelism; the rank at fault stops in one of four ways, and up
to 5 % of the dumps are missing.  `tests/testbed/stopped_jobs.py` executes them operation by operation.

    python -m bench faults_dumps     FLEETWRIGHT_BENCH_JOBS=1000
"""

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.harness import SHARED_DATA, Row
from deploy.common.executors import Processes
from faults.readers import ParseErrors, Recording, read_loose
from faults.readers.flight import parse_dump
from faults.replay import replay
from tests.testbed.stopped_job_cases import Case, random_case
from tests.testbed.stopped_jobs import Stop

JOBS: Final = int(os.environ.get("FLEETWRIGHT_BENCH_JOBS", "1000"))
FIRST_SEED: Final = 200_000  # the rules were written with jobs of seeds below 60,000
DUMPS: Final = 4096
ENTRIES: Final = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    ranks: int
    is_named: bool  # each culprit
    others: int  # ranks that are named and are none


def run() -> list[Row]:
    return [*_public(), *_generated(), *_large("json"), *_large("pickle")]


def _public() -> Iterator[Row]:
    folder = SHARED_DATA / "faults" / "nccl"
    if not folder.is_dir():
        return
    for name, truth in json.loads((folder / "truth.json").read_text()).items():
        files = {path.name: path.read_bytes() for path in (folder / name).iterdir()}
        dumps = {
            int(file.removeprefix("_dump_").removesuffix(".json")): data
            for file, data in files.items()
            if "_dump_" in file
        }
        yield {"case": f"public dumps {name}", "named": str(sorted(_named(_read(dumps)))), "truth": str(truth["ranks"])}


def _generated() -> Iterator[Row]:
    seeds = range(FIRST_SEED, FIRST_SEED + JOBS)
    mixed = [outcome for _, outcome in Processes().run(_judged, seeds)]
    dead = [outcome for _, outcome in Processes().run(partial(_judged, how=Stop.DEAD), seeds[: JOBS // 4])]
    kinds = sorted({outcome.kind for outcome in mixed})
    parts = [("all generated jobs", mixed)]
    parts += [(f"of these: {kind}", [each for each in mixed if each.kind == kind]) for kind in kinds]
    parts += [("further jobs: the culprit leaves no dump", dead)]
    for case, outcomes in parts:
        yield {
            "case": case,
            "jobs": len(outcomes),
            "largest_ranks": max(each.ranks for each in outcomes),
            "culprits_named_percent": 100 * sum(each.is_named for each in outcomes) / len(outcomes),
            "jobs_with_another_rank_named": sum(each.others > 0 for each in outcomes),
        }


def _judged(seed: int, *, how: Stop | None = None) -> Outcome:
    case = random_case(seed, how=how)
    named = _named(_read({rank: json.dumps(dump).encode() for rank, dump in case.dumps.items()}))
    culprits = set(case.stops)
    return Outcome(_kind(case), case.shape.ranks, culprits <= named, len(named - culprits))


def _kind(case: Case) -> str:
    how = next(iter(case.stops.values()))
    return f"{how.value}{', without its dump' if case.missing & case.stops.keys() else ''}"


def _read(dumps: dict[int, bytes]) -> Recording:
    tally = ParseErrors()
    return read_loose([(rank, parse_dump(data, tally=tally)) for rank, data in dumps.items()], (), tally=tally)


def _named(recording: Recording) -> set[int]:
    found = replay(recording.job, recording.observations)
    return {diagnosis.rank for diagnosis in found if diagnosis.rank is not None}


def _large(form: str) -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(prefix="fleetwright-dumps-"))
    try:
        size_bytes = 0
        for rank in range(DUMPS):
            dump = _large_dump(rank)
            data = json.dumps(dump).encode() if form == "json" else pickle.dumps(dump, protocol=2)
            size_bytes += len(data)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        begun_s = time.monotonic()
        command = [sys.executable, "-m", "api.cli", "faults", "replay", str(folder), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took_s = time.monotonic() - begun_s
    finally:
        shutil.rmtree(folder)
    named = [each["rank"] for each in json.loads(done.stdout)]
    yield {
        "case": f"{DUMPS:,} dumps of {ENTRIES:,} entries as {form}",
        "named": str(named),
        "truth": str([DUMPS // 3]),
        "size_mb": size_bytes / 1e6,
        "wall_s": took_s,
    }


def _large_dump(rank: int) -> dict[str, Any]:
    """Return the dump of a rank in a tensor group of 8 and the group of all; one rank stops calling."""
    first = rank // 8 * 8
    groups = {"0": ("default_pg", list(range(DUMPS))), str(1 + rank // 8): ("mesh_tp", list(range(first, first + 8)))}
    behind = rank == DUMPS // 3
    entries = []
    for index in range(ENTRIES - (2 if behind else 0)):
        number, (name, (description, _)) = index % 2, list(groups.items())[index % 2]
        is_open = index >= ENTRIES - 2
        called_ns = 1_795_000_000_000_000_000 + index * 1_000_000
        entries.append(
            {
                "record_id": index,
                "pg_id": number,
                "process_group": (name, description),
                "collective_seq_id": 1000 + index // 2,
                "p2p_seq_id": 0,
                "op_id": index,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": called_ns,
                "input_sizes": [[4096, 1, 5120]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[4096, 1, 5120]],
                "output_dtypes": ["BFloat16"],
                "state": "scheduled" if is_open else "completed",
                "time_discovered_started_ns": None if is_open else called_ns + 1000,
                "time_discovered_completed_ns": None if is_open else called_ns + 90_000,
                "retired": not is_open,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
    config = {name: {"name": name, "desc": text, "ranks": str(ranks)} for name, (text, ranks) in groups.items()}
    return {"version": "2.9", "pg_config": config, "pg_status": {}, "entries": entries}
