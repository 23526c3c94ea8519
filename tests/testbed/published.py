"""A real service that publishes counts, and the sample configurations of the programs that read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.client import Client
from api.schemas.applications import KubernetesScale
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from api.schemas.wanted import WantedCounts
from planner.request import PlanRequest
from tests.deploy.controller.harness import request_for
from tests.testbed.processes import LOOPBACK
from tests.testbed.prometheus import Prometheus
from tests.testbed.server import ROOT, Server

EXAMPLES: Final = ROOT / "examples" / "autoscaling"
CONTRACTS: Final = ROOT.parent / "shared" / "data" / "contracts"  # public data, not part of this project
SCRAPE_S: Final = "1s"

needs_contracts = pytest.mark.skipif(
    not CONTRACTS.exists(), reason=f"{CONTRACTS}, the samples of the autoscalers, is absent"
)


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """A service with one target in mode `recommend`; its reports are those of a controller."""

    server: Server
    client: Client
    parts: tuple[str, ...]

    @classmethod
    def register(cls, server: Server, client: Client, *, namespace: str, objects: Mapping[str, str]) -> "Publisher":
        """Register the target `chat` with Deployments by part."""
        request: PlanRequest = request_for({"H100-SXM": 1})
        described = {"namespace": namespace, "objects": {part: {"name": name} for part, name in objects.items()}}
        spec = TargetSpec(
            workload="chat",
            application=KubernetesScale.model_validate(described),
            mode=Mode.RECOMMEND,
            plan_id=client.create_plan(request).id,
        )
        client.create_target("chat", spec)
        return cls(server=server, client=client, parts=tuple(objects))

    def publish(self, *counts: int, running: int = 1) -> None:
        """Report wanted counts, in the order of the parts."""
        now = datetime.now(UTC)
        wanted = WantedCounts(plan_id="plan", at=now, replicas=dict(zip(self.parts, counts, strict=True)))
        status = TargetStatus(
            phase=Phase.RECOMMENDED, observed_at=now, applied=dict.fromkeys(self.parts, running), wanted=wanted
        )
        self.client.report_target_status("chat", status)

    @property
    def address(self) -> str:
        return self.server.url.removeprefix("http://")


def scrape(prometheus: Prometheus, *jobs: Mapping[str, Any], addresses: list[str]) -> None:
    """Scrape these addresses by jobs that name the addresses of an installation."""
    own = {"scrape_interval": SCRAPE_S, "scrape_timeout": SCRAPE_S}
    configs = []
    for job in jobs:
        (static,) = job.get("static_configs", [{}])
        configs.append({**job, **own, "static_configs": [{**static, "targets": addresses}]})
    prometheus.configure({"scrape_configs": configs})
    for job in jobs:
        prometheus.wait_until_up(str(job["job_name"]))


def two_replicas(publisher: Publisher) -> list[str]:
    """Return two addresses of one service, which Prometheus takes for two replicas."""
    port = publisher.address.rpartition(":")[2]
    return [f"{LOOPBACK}:{port}", f"localhost:{port}"]
