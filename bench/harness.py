"""What benchmarks share: public data, processor time, child processes, and runs that continue where they stopped."""

import gzip
import hashlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "bench" / "out"
SHARED_DATA = ROOT.parent / "shared" / "data"  # public data, not part of this project
FULL = os.environ.get("FLEETWRIGHT_BENCH_FULL") == "1"
LIMIT_S = float("inf") if FULL else 120.0  # of a benchmark that continues

ResultT = TypeVar("ResultT")
Row = dict[str, Any]


def found(domain: str, name: str) -> Path | None:
    """A file of public data in FLEETWRIGHT_PLANNER_DATA, FLEETWRIGHT_POWER_DATA, ... or beside the checkout."""
    path = Path(os.environ.get(f"FLEETWRIGHT_{domain.upper()}_DATA", SHARED_DATA / domain)) / name
    return path if path.is_file() else None


def text(domain: str, name: str) -> str | None:
    path = found(domain, name)
    if path is None:
        return None
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def processor_ms(work: Callable[[], ResultT], *, repeats: int) -> tuple[ResultT, float]:
    """The result, and the median processor time in milliseconds after one run to warm up."""
    result, times_s = work(), []
    for _ in range(repeats):
        started_s = time.process_time()
        work()
        times_s.append(time.process_time() - started_s)
    return result, 1e3 * statistics.median(times_s)


@contextmanager
def child(main: Callable[..., None], *args: object, method: str = "spawn") -> Iterator[BaseProcess]:
    """Run a function in a process of its own until the block ends."""
    process = multiprocessing.get_context(method).Process(target=main, args=args, daemon=True)  # type: ignore[attr-defined]
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def continued(
    name: str, parts: Mapping[str, Callable[[], Row]], *, sources: Sequence[Path], limit_s: float = LIMIT_S
) -> dict[str, Row]:
    """Measure the missing parts for about this time, at least one; return every part that is measured.

    A finished part is a line of bench/out/NAME.jsonl with a digest of the sources, so lines of other code do not count.
    FLEETWRIGHT_BENCH_SHARE=0/2 and 1/2 divide the parts between two processes.
    """
    kept, code = OUT / f"{name}.jsonl", _digest(sources)
    share, shares = map(int, os.environ.get("FLEETWRIGHT_BENCH_SHARE", "0/1").split("/"))
    done, begun_s = _lines(kept, code), time.monotonic()
    for part, measure in list(parts.items())[share::shares]:
        if part in done:
            continue
        line = {"code": code, "part": part} | measure()
        OUT.mkdir(parents=True, exist_ok=True)
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if time.monotonic() - begun_s > limit_s:
            break
    lines = _lines(kept, code)
    return {part: lines[part] for part in parts if part in lines}


def _digest(sources: Sequence[Path]) -> str:
    paths = [path for place in sources for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _lines(kept: Path, code: str) -> dict[str, Row]:
    texts = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ()
    return {line["part"]: line for line in map(json.loads, texts) if line["code"] == code}
