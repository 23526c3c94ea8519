"""Write the dashboards into the chart, or with `--check` report the files that are out of date."""

import json
import sys
from pathlib import Path

from scripts.dashboards.faults import faults
from scripts.dashboards.loop import loop
from scripts.dashboards.moe import moe
from scripts.dashboards.nodes import nodes
from scripts.dashboards.overview import overview
from scripts.dashboards.power import power
from scripts.dashboards.serving import serving

FOLDER = Path(__file__).parents[2] / "helm" / "fleetwright" / "files" / "dashboards"
DASHBOARDS = (overview(), serving(), loop(), moe(), nodes(), power(), faults())


def rendered() -> dict[Path, str]:
    return {FOLDER / f"{board.uid}.json": json.dumps(board.to_json(), indent=2) + "\n" for board in DASHBOARDS}


def stale() -> list[Path]:
    """Return the files that are out of date, and those that belong to no dashboard."""
    wanted = rendered()
    present = set(FOLDER.glob("*.json"))
    differing = {path for path, text in wanted.items() if path not in present or path.read_text() != text}
    return sorted(differing | (present - wanted.keys()))


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        for path in stale():
            print(f"{path.name} is out of date: run python -m scripts.dashboards", file=sys.stderr)
        return 1 if stale() else 0
    for path, text in rendered().items():
        path.write_text(text)
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
