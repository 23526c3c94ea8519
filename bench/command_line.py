"""How long a user waits for the command line, start of the interpreter included; each command seven times."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RUNS = 7
EXAMPLE = Path(__file__).parent.parent / "examples" / "chat.yaml"
COMMANDS = (("--version",), ("gpus", "list"), ("plan", str(EXAMPLE)), ("plan", str(EXAMPLE), "--format", "json"))


def run() -> list[dict[str, Any]]:
    return [_measure(command) for command in COMMANDS]


def _measure(command: tuple[str, ...]) -> dict[str, Any]:
    seconds = []
    for _ in range(RUNS):
        started_s = time.perf_counter()
        subprocess.run([sys.executable, "-m", "api.cli", *command], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started_s)
    shown = " ".join(part if part != str(EXAMPLE) else "examples/chat.yaml" for part in command)
    return {
        "command": f"fleetwright {shown}",
        "min_s": min(seconds),
        "median_s": statistics.median(seconds),
        "max_s": max(seconds),
    }
