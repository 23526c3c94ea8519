"""Runs a fleet of emulated engines (`deploy.emulator.fleet_server`) that Prometheus scrapes as replicas come and go.

    with scraped_fleet(spec, prometheus_programs, directory=tmp_path) as (fleet, prometheus):
        ...

The Prometheus is the test's own: one that tests share would still have the series of the fleet before.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from deploy.emulator.fleet_server import FleetCounts, FleetStatus
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.prometheus import Prometheus, running_prometheus
from tests.testbed.waiting import PATIENCE_S, wait_for

JOB: Final = "engines"
SCRAPE_INTERVAL: Final = "200ms"


@dataclass(frozen=True, kw_only=True)
class EngineFleet:
    """A running fleet.  `url` takes requests of the OpenAI protocol too."""

    url: str
    process: Process

    @property
    def status(self) -> FleetStatus:
        return FleetStatus.model_validate(self._call("GET", "/fleet"))

    @property
    def counts(self) -> FleetCounts:
        return FleetCounts.model_validate(self._call("GET", "/fleet/counts"))

    def scale(self, option: str, replicas: int, *, weight: float | None = None) -> None:
        """Set the count of an option; new replicas warm up, removed ones drain."""
        body = {"replicas": replicas} | ({} if weight is None else {"weight": weight})
        self._call("PUT", f"/fleet/options/{option}", body)

    def restart(self, replica: str) -> None:
        """Kill a replica's process; it starts again at its port."""
        self._call("POST", f"/fleet/replicas/{replica}/restart")

    def wait_settled(self, option: str, replicas: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until an option has this many ready replicas and no other."""
        wait_for(
            lambda: self.status.options[option],
            lambda found: found.ready == len(found.replicas) == replicas,
            what=f"{replicas} replicas of {option}",
            timeout_s=timeout_s,
        )

    def scrape_config(self, *, interval: str = SCRAPE_INTERVAL) -> dict[str, Any]:
        """Return a configuration of Prometheus; each series has the labels `pod` and `option`."""
        discovery = {"url": f"{self.url}/fleet/targets", "refresh_interval": interval}
        job = {"job_name": JOB, "scrape_interval": interval, "scrape_timeout": interval}
        return {"scrape_configs": [job | {"http_sd_configs": [discovery]}]}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = httpx.request(method, f"{self.url}{path}", json=body, trust_env=False, timeout=PATIENCE_S)
        return response.raise_for_status().json()


@contextmanager
def running_fleet(spec: Mapping[str, Any], *, directory: Path) -> Iterator[EngineFleet]:
    """Run a fleet of this `FleetSpec`."""
    path, port = directory / "fleet.yaml", free_ports(1)[0]
    path.write_text(yaml.safe_dump(dict(spec)))
    argv: list[str | Path] = [sys.executable, "-m", "deploy.emulator.fleet_server", path, "--port", str(port)]
    url = f"http://{LOOPBACK}:{port}"
    with Process.start(argv, name="fleet", log_dir=directory, cwd=Path(__file__).parents[2]) as process:
        process.wait_ready(lambda: answers_ok(f"{url}/fleet"))
        yield EngineFleet(url=url, process=process)


@contextmanager
def scraped_fleet(
    spec: Mapping[str, Any], programs: Path, *, directory: Path, interval: str = SCRAPE_INTERVAL
) -> Iterator[tuple[EngineFleet, Prometheus]]:
    """Run a fleet, and a Prometheus that has scraped each of its first replicas; `programs` is the fixture's folder."""
    data = directory / "prometheus"
    data.mkdir()
    with (
        running_fleet(spec, directory=directory) as fleet,
        running_prometheus(programs / "prometheus", directory=data) as prometheus,
    ):
        prometheus.configure(fleet.scrape_config(interval=interval))
        ready = sum(option.ready for option in fleet.status.options.values())
        if ready:
            prometheus.wait_for_samples(f'sum(up{{job="{JOB}"}}) == {ready}')
        yield fleet, prometheus
