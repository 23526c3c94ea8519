"""A test harness: the controller, a real service, and doubles of its targets."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from api.client import AsyncClient, InProcessTransport
from api.schemas.applications import Application, RayServeApplication
from api.schemas.target_state import Approval, ApprovalRequest
from api.schemas.targets import Freeze, Mode, TargetSpec, TargetStatus
from api.schemas.tokens import TokenScope
from deploy.actuators.ray_serve.actuator import ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.common.leader_loop import Liveness
from deploy.controller.controller import Controller
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.prometheus_health import HealthReader, unread_health
from deploy.controller.reconcile import ControllerSettings
from planner.request import PlanRequest
from tests.deploy.actuators.serve_double import ServeDouble
from tests.testbed.service import TOKENS, RunningService, SteppedClock

WORKLOAD = "chat"
LEASE = LeaseSettings(holder="only-controller")


def request_for(replicas: Mapping[str, int], *, workload: str = WORKLOAD, missing: int = 0) -> PlanRequest:
    """A request whose only plan is these replicas: each serves one request a second and all of them are needed.

    `missing` adds this many requests a second beyond the capacity.
    """
    options = [
        {"name": gpu.lower(), "gpu": gpu, "price_usd_per_h": 1.0, "max_rps": [[1.0]], "available": count}
        for gpu, count in replicas.items()
        if count > 0
    ]
    buckets = {"input_tokens": [1000], "output_tokens": [100], "share": [[1.0]]}
    rate_rps = max(0.0, sum(replicas.values()) - 0.5) + missing
    described = {"name": workload, "rate_rps": rate_rps, "buckets": buckets, "options": options}
    return PlanRequest.model_validate({"workloads": [described]})


@dataclass
class Harness:
    """The API, the targets by host name, and a clock that the test advances."""

    api: AsyncClient
    approver: AsyncClient
    clock: SteppedClock
    targets: dict[str, ServeDouble] = field(default_factory=dict)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    async def plan(self, replicas: Mapping[str, int], *, workload: str = WORKLOAD, missing: int = 0) -> str:
        """Store a plan for these replicas and return its id."""
        return (await self.api.create_plan(request_for(replicas, workload=workload, missing=missing))).id

    async def register(self, name: str, serve: ServeDouble, *, gpus: dict[str, str] | None = None, **spec: Any) -> None:
        """Register a double whose deployments are named `on-GPU`, or by `gpus`."""
        self.targets[name] = serve
        deployments = gpus or {deployment.removeprefix("on-"): deployment for deployment in serve.deployments}
        application = {"dashboard_url": f"http://{name}:8265", "application": "chat", "deployments": deployments}
        await self.register_real(name, RayServeApplication.model_validate(application), **spec)

    async def register_real(self, name: str, application: Application, **spec: Any) -> None:
        """Register an application, in mode `apply` by default."""
        described = {"workload": WORKLOAD, "application": application, "mode": Mode.APPLY} | spec
        await self.api.create_target(name, TargetSpec.model_validate(described))

    async def change(self, name: str, **spec: Any) -> None:
        """Change fields of the spec of a target."""
        before = await self.api.get_target(name)
        after = TargetSpec.model_validate(before.document.spec.model_dump(mode="json") | spec)
        await self.api.replace_target(name, after, if_match=before.etag)

    async def freeze(self, *, frozen: bool, reason: str | None = None) -> None:
        """Set or lift the global freeze."""
        await self.api.replace_freeze(Freeze(frozen=frozen, reason=reason), if_match="*")

    async def status(self, name: str) -> TargetStatus:
        """The last reported status of a target."""
        return await self.api.get_target_status(name)

    async def approve(self, name: str) -> Approval:
        """Approve the change set of the last reported status, as another person than who registered the target."""
        status, target = await self.status(name), (await self.api.get_target(name)).document
        request = {"plan_id": target.spec.plan_id, "digest": status.digest}
        return await self.approver.approve_target(name, ApprovalRequest.model_validate(request))

    def controller(
        self,
        *,
        settings: ControllerSettings | None = None,
        api: AsyncClient | None = None,
        http: httpx.AsyncClient | None = None,
        actuators: Actuators | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        lease: LeaseSettings = LEASE,
        health: HealthReader = unread_health,
        liveness: Liveness | None = None,
    ) -> Controller:
        """A new controller without state of earlier ones.  It uses the doubles unless a test passes something else."""
        self.registry = CollectorRegistry()
        http = http or httpx.AsyncClient(transport=httpx.MockTransport(self._route))
        clock = Clock(now=self.clock.now, steady_s=self.clock.monotonic_s, **({"sleep": sleep} if sleep else {}))
        leadership = Leadership(api=api or self.api, settings=lease, clock=clock)
        return Controller(
            api=api or self.api,
            leadership=leadership,
            actuators=actuators or Actuators(ray_serve=ray_serve_actuators(http)),
            http=http,
            health=health,
            metrics=ControllerMetrics(self.registry),
            settings=settings,
            clock=clock,
            liveness=liveness,
        )

    async def round(self, controller: Controller, *, settle: bool = True) -> bool:
        """Advance the clock by one period and reconcile; then, by default, start and stop all requested replicas."""
        self.clock.advance(5.0)
        ok = await controller.reconcile()
        if settle:
            for serve in self.targets.values():
                serve.settle()
        return ok

    def counted(self, name: str, **labels: str) -> float | None:
        """A metric of the newest controller."""
        return self.registry.get_sample_value(name, labels)

    async def _route(self, request: httpx.Request) -> httpx.Response:
        return await self.targets[request.url.host].answer(request)


@asynccontextmanager
async def harness_of(service: RunningService) -> AsyncIterator[Harness]:
    """A harness around a running service, called over ASGI."""
    transport = InProcessTransport(service.app, raise_app_exceptions=False)
    async with (
        AsyncClient("http://localhost", token=TOKENS[TokenScope.ADMIN], transport=transport) as api,
        AsyncClient("http://localhost", token=TOKENS[TokenScope.APPROVE], transport=transport) as approver,
    ):
        yield Harness(api=api, approver=approver, clock=service.clock)


def app(**replicas: int) -> ServeDouble:
    """A Serve application with these replicas by GPU, in deployments named `on-GPU`."""
    return ServeDouble.running(**{f"on-{gpu}": count for gpu, count in replicas.items()})
