"""The history of a new planning loop, read from the blocks of a real Prometheus."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from api.schemas.demand_sources import DemandSources
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts
from deploy.common.clock import Clock
from deploy.demand.reader import demand_reader
from deploy.planning_loop.history import windows_before
from planner.demand.replicas import Window
from planner.demand.series import Series
from planner.demand.windows import DemandWindow
from tests.planner.demand.scraped import Served, scraped
from tests.testbed.prometheus import running_prometheus

pytestmark = pytest.mark.prometheus

WINDOW_S = 60.0
WINDOWS = 20


def open_metrics(series: list[Series]) -> str:
    lines = []
    for each in series:
        labels = ",".join(f'{label}="{value}"' for label, value in each.labels.items())
        lines += [f"{each.name}{{{labels}}} {value:g} {at_s:.3f}" for at_s, value in each.samples]
    return "\n".join([*lines, "# EOF", ""])


async def history(url: str, *, now: Window) -> list[dict[str, DemandWindow]]:
    source = {"kind": "prometheus", "url": url, "profile": "vllm", "parts": {"*": {}}, "max_age_s": 30.0}
    demand = DemandSources.model_validate({"sources": [source]})
    async with demand_reader(allowed=AllowedHosts.parse(LOOPBACK_HOSTS)) as reader:
        return await windows_before(now, demand=reader, sources={"chat": demand}, clock=Clock())


def test_past_windows_are_read_from_stored_blocks(prometheus_programs: Path, tmp_path: Path) -> None:
    begin_s = (time.time() - 86_400) // WINDOW_S * WINDOW_S
    now = Window(begin_s + WINDOWS * WINDOW_S, begin_s + (WINDOWS + 1) * WINDOW_S)
    requests = [Served(begin_s + n / 2, begin_s + n / 2 + 0.5) for n in range(round(2 * (now.end_s - begin_s)))]
    series = scraped(requests, labels={"pod": "a"}, since_s=begin_s, until_s=now.end_s, every_s=15.0)
    page = tmp_path / "page.txt"
    page.write_text(open_metrics(series))
    command = ["tsdb", "create-blocks-from", "openmetrics", str(page), str(tmp_path / "data")]
    subprocess.run([prometheus_programs / "promtool", *command], check=True, capture_output=True)
    with running_prometheus(prometheus_programs / "prometheus", directory=tmp_path) as server:
        found = asyncio.run(history(server.url, now=now))
    assert len(found) >= WINDOWS - 1
    assert [each["chat"].arrivals_rps for each in found] == pytest.approx([2.0] * len(found), rel=0.05)
