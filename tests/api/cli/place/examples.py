"""Inputs of the `fleetwright place` tests, and readers of its output."""

import json
from pathlib import Path
from typing import Any

from placement.document import Placement

EXAMPLE = Path(__file__).parents[4] / "examples" / "expert-loads.json"
SHAPE = ("--slots", "40", "--gpus", "8", "--nodes", "2")
PNG = b"\x89PNG\r\n\x1a\n"
ROWS, EXPERTS = 6, 32


def loads() -> list[list[float]]:
    found: list[list[float]] = json.loads(EXAMPLE.read_text())["load"]
    return found


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def read(path: Path) -> Placement:
    return Placement.model_validate_json(path.read_bytes())
