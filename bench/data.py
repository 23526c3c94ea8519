"""Public data for some benchmarks, in FLEETWRIGHT_PLANNER_DATA, FLEETWRIGHT_POWER_DATA or ../shared/data.

The data is not part of this project.
"""

import gzip
import os
from pathlib import Path

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def found(room: str, name: str) -> Path | None:
    folder = Path(os.environ.get(f"FLEETWRIGHT_{room.upper()}_DATA", BESIDE / room))
    path = folder / name
    return path if path.is_file() else None


def text(room: str, name: str) -> str | None:
    path = found(room, name)
    if path is None:
        return None
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
