"""Draws every board with Perses and Chromium, over a Prometheus that scrapes every process of a release."""

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.boards.perses import converted
from scripts.dashboards.__main__ import DASHBOARDS
from tests.helm.chart import ROOT
from tests.testbed.browser import Browser
from tests.testbed.observed_release import NAMESPACE, observed_release
from tests.testbed.processes import LOOPBACK
from tests.testbed.prometheus import Prometheus

DIST = ROOT / "scripts" / "boards" / "dist"
IMAGES = ROOT / "docs" / "images"
WIDTH_PX, SHOWN_MIN = 1600, 5
PAINTED = "document.querySelectorAll('canvas, td, [data-testid=panel]').length"
LOADING = "document.querySelectorAll('[role=progressbar], .MuiSkeleton-root').length"

__all__ = ["observed_release"]  # a fixture

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.kubernetes,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("FLEETWRIGHT_BOARDS" not in os.environ, reason="`make boards` draws them, with npm"),
]


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Write no log."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Files, directory=str(folder))
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
        server.shutdown()


def test_every_board_is_drawn(observed_release: Prometheus, tmp_path: Path, browser: Browser) -> None:
    image = pytest.importorskip("PIL.Image", reason="the development tools have Pillow")
    boards = DIST / "boards"
    boards.mkdir(exist_ok=True)
    with _served(DIST) as url:
        for dashboard in DASHBOARDS:
            board = converted(dashboard, prometheus=observed_release.url, namespace=NAMESPACE, minutes=SHOWN_MIN)
            (boards / f"{dashboard.uid}.json").write_text(json.dumps(board))
            page = browser.open(width=WIDTH_PX, height=_height_px(board))
            page.goto(f"{url}/index.html?board={dashboard.uid}")
            page.wait(f"{PAINTED} > 5 && {LOADING} === 0", what=f"the panels of {dashboard.uid}", seconds=180)
            text = page.evaluate("document.body.innerText")
            drawn = [panel.title for row in dashboard.rows for panel in row.panels if panel.title in text]
            assert drawn == [panel.title for row in dashboard.rows for panel in row.panels]
            assert "No data" not in text
            picture = tmp_path / f"{dashboard.uid}.png"
            page.screenshot(picture)
            with image.open(picture) as found:
                size = (found.width * 3 // 4, found.height * 3 // 4)
                found.convert("RGB").resize(size).save(IMAGES / f"board-{_short(dashboard.uid)}.webp", quality=60)


def _short(uid: str) -> str:
    return uid.removeprefix("fleetwright-")


def _height_px(board: dict[str, Any]) -> int:
    """Return a height at which Perses draws every panel, because it draws only what is in view."""
    layouts = board["dashboard"]["spec"]["layouts"]
    rows = sum(max(item["y"] + item["height"] for item in layout["spec"]["items"]) for layout in layouts)
    return int(rows) * 38 + len(layouts) * 70 + 60
