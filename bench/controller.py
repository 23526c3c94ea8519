"""Cost of one reconcile of all targets: 200 targets on 1,000 simulated nodes, steady and with every target changing.

The controller and its clients are real.  The API and the 200 Serve applications respond from memory in the same
process, so their small share is included.  Replicas start and stop at once.
"""

import asyncio
import gc
import json
import resource
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import structlog
from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from api.schemas.plans import PlanRecord
from bench.harness import Row
from deploy.actuators.ray_serve.actuator import ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.controller.controller import Controller
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.reconcile import ControllerSettings

TARGETS = 200
NODES_EACH = 5
GPUS = ("A100", "H100")
WARM_UP, STEADY, CHANGING = 20, 500, 60
PAGE_BYTES = resource.getpagesize()


def run() -> list[Row]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    fleet = Fleet()
    async with (
        AsyncClient("http://api", transport=httpx.MockTransport(fleet.api)) as api,
        httpx.AsyncClient(transport=httpx.MockTransport(fleet.serve)) as http,
    ):
        clock = Clock()
        controller = Controller(
            api=api,
            actuators=Actuators(ray_serve=ray_serve_actuators(http)),
            http=http,
            metrics=ControllerMetrics(CollectorRegistry()),
            leadership=Leadership(api=api, settings=LeaseSettings(holder="bench", lease_s=3600.0), clock=clock),
            settings=ControllerSettings(),
            clock=clock,
        )
        rows = []
        await _rounds(controller, fleet, WARM_UP, changing=True)
        await _rounds(controller, fleet, WARM_UP, changing=False)
        for name, rounds in (("nothing to do", STEADY), ("every target changing", CHANGING)):
            rows.append(await _row(controller, fleet, name, rounds))
    return rows


async def _row(controller: Controller, fleet: "Fleet", name: str, rounds: int) -> Row:
    before_mb, writes = _rss_mb(), fleet.writes
    cpu_s, wall_s = await _rounds(controller, fleet, rounds, changing=name != "nothing to do")
    return {
        "round": name,
        "targets": TARGETS,
        "nodes": TARGETS * NODES_EACH,
        "rounds": rounds,
        "writes": fleet.writes - writes,
        "cpu_s_per_round": cpu_s / rounds,
        "wall_s_per_round": wall_s / rounds,
        "rss_mb": _rss_mb(),
        "rss_growth_mb": _rss_mb() - before_mb,
    }


async def _rounds(controller: Controller, fleet: "Fleet", rounds: int, *, changing: bool) -> tuple[float, float]:
    cpu_s = wall_s = 0.0
    for number in range(rounds):
        if changing and number % 3 == 0:  # up, down, verified
            fleet.turn()
        began = time.process_time(), time.perf_counter()
        assert await controller.reconcile()
        cpu_s += time.process_time() - began[0]
        wall_s += time.perf_counter() - began[1]
    if not changing:
        assert fleet.is_as_planned()
    return cpu_s, wall_s


def _rss_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_BYTES / 1e6


@dataclass
class Fleet:
    planned: int = 0  # index of the GPU type that all replicas are to be on
    version: int = 1
    writes: int = 0
    requested: list[list[int]] = field(default_factory=lambda: [[NODES_EACH, 0] for _ in range(TARGETS)])
    statuses: dict[str, bytes] = field(default_factory=dict)
    lease: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._plans = [_plan(gpu) for gpu in GPUS]

    def turn(self) -> None:
        self.planned = 1 - self.planned
        self.version += 1

    def is_as_planned(self) -> bool:
        return all(counts[self.planned] == NODES_EACH and sum(counts) == NODES_EACH for counts in self.requested)

    def api(self, request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path.split("/")[2:]:
            case "GET", ["targets"]:
                return httpx.Response(200, json={"items": [self._target(n) for n in range(TARGETS)]})
            case "GET", ["targets", name]:
                return self._tagged(self._target(int(name[1:])))
            case "GET", ["freeze"]:
                return self._tagged({"frozen": False, "reason": None})
            case "GET", ["plans", plan_id]:
                return httpx.Response(200, content=self._plans[int(plan_id)])
            case _, ["leases", _name]:
                return self._lease(request)
            case _, ["targets", name, "status"]:
                return self._status(request, name)
        raise AssertionError(f"{request.method} {request.url} is not called by a controller")

    def serve(self, request: httpx.Request) -> httpx.Response:
        number = int((request.url.host or "").removeprefix("t"))
        if request.method == "POST":
            deployment = request.url.path.split("/")[-2]
            self.requested[number][GPUS.index(deployment)] = json.loads(request.content)["target_num_replicas"]
            self.writes += 1
            return httpx.Response(200, json={"message": "requested"})
        deployments = {
            gpu: {
                "name": gpu,
                "status": "HEALTHY",
                "target_num_replicas": count,
                "deployment_config": {"name": gpu, "num_replicas": count},
                "replicas": [_replica(number, gpu, replica) for replica in range(count)],
            }
            for gpu, count in zip(GPUS, self.requested[number], strict=True)
        }
        application = {
            "name": "chat",
            "status": "RUNNING",
            "message": "",
            "external_scaler_enabled": True,
            "deployments": deployments,
        }
        return httpx.Response(200, json={"applications": {"chat": application}})

    def _target(self, number: int) -> Row:
        application = {
            "dashboard_url": f"http://t{number}:8265",
            "application": "chat",
            "deployments": {gpu: gpu for gpu in GPUS},
        }
        spec = {"workload": "chat", "application": application, "mode": "apply", "plan_id": str(self.planned)}
        return {"name": f"t{number}", "version": self.version, "spec": spec | {"max_step_per_window": 1_000}}

    def _tagged(self, document: dict[str, Any]) -> httpx.Response:
        return httpx.Response(200, json=document, headers={"ETag": f'"{self.version}"'})

    def _status(self, request: httpx.Request, name: str) -> httpx.Response:
        if request.method == "PUT":
            self.statuses[name] = request.content
            return httpx.Response(204)
        found = self.statuses.get(name)
        return httpx.Response(404) if found is None else httpx.Response(200, content=found)

    def _lease(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and self.lease is None:
            return httpx.Response(404)
        status = 200
        if request.method == "PUT":
            status = 201 if self.lease is None else 200
            beats = self.lease["beats"] + 1 if self.lease is not None else 0
            self.lease = json.loads(request.content) | {"name": "controller", "term": 1, "beats": beats}
        return httpx.Response(
            status, json=self.lease, headers={"ETag": f'"{self.lease["beats"]}"'} if self.lease else {}
        )


def _plan(gpu: str) -> bytes:
    buckets = {"input_tokens": [1000], "output_tokens": [100], "share": [[1.0]]}
    options = [{"name": each.lower(), "gpu": each, "price_usd_per_h": 1.0, "max_rps": [[1.0]]} for each in GPUS]
    workload = {"name": "chat", "rate_rps": NODES_EACH - 0.5, "buckets": buckets, "options": options}
    now = datetime.now(UTC)
    allocation = {
        "workload": "chat",
        "option": gpu.lower(),
        "gpu": gpu,
        "count": NODES_EACH,
        "gpus_per_replica": 1,
        "offer": None,
        "busy": 0.9,
        "power_w": 400.0,
    }
    plan = {"status": "optimal", "solver": "highs", "solve_s": 0.1, "planned_at": now, "allocation": [allocation]}
    record = {
        "id": str(GPUS.index(gpu)),
        "created_at": now,
        "created_by": "bench",
        "request": {"workloads": [workload]},
    }
    return PlanRecord.model_validate(record | {"plan": plan}).model_dump_json().encode()


def _replica(number: int, gpu: str, replica: int) -> Row:
    """As Serve describes one: each on a node of its own."""
    node = f"{number:04x}{replica:04x}" * 7
    return {
        "replica_id": f"{gpu}#{replica:08x}",
        "state": "RUNNING",
        "node_id": node,
        "node_ip": f"10.{number // 250}.{number % 250}.{replica + 1}",
        "node_instance_id": f"i-{node[:16]}",
        "actor_id": node[:32],
        "actor_name": f"SERVE_REPLICA::chat#{gpu}#{replica:08x}",
        "worker_id": node,
        "pid": 1_000 + replica,
        "start_time_s": 1_700_000_000.0,
    }
