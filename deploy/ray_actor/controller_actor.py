"""The actor that runs a controller: detached, named by name and generation, restarted by Ray whenever it ends.

Its loop starts with the actor, so a restart needs no command: after a crash the controller waits until the lease of the
crashed one expires, and continues.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from api.client import ApiError, AsyncClient, token_from_environment, token_from_file
from api.schemas.target_hosts import CLUSTER_HOSTS, TARGET_HOSTS_VARIABLE, AllowedHosts, split_hosts
from deploy.actuators.registry import reachable_actuators
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess
from deploy.common.leader_election import Leadership, LeaseRole, LeaseSettings, new_holder
from deploy.common.logs import configure_logs
from deploy.common.target_http import target_client
from deploy.controller.controller import Controller
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.prometheus_health import prometheus_health
from deploy.controller.reconcile import ControllerSettings
from deploy.planning_loop.process import folders_from_environment, planning_loops
from deploy.ray_actor.cluster import RayCluster, own_placement
from deploy.ray_actor.loop_thread import LoopThread
from deploy.ray_actor.messages import ControllerActorSettings, ControllerName, ControllerReport
from deploy.ray_actor.node_supervisor import NodeSupervisor

log = structlog.get_logger()

RELEASE_S: Final = 5.0
BIND_RETRY_S: Final = 2.0


class CountedMetrics(ControllerMetrics):
    """The controller's metrics, and the number of reconciles for the actor's status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._lock = threading.Lock()
        self.reconciles = self.reconciles_failed = 0
        self.last_reconcile_s: float | None = None

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        super().count_reconcile(ok=ok, duration_s=duration_s, at=at)
        with self._lock:
            self.reconciles += ok
            self.reconciles_failed += not ok
            self.last_reconcile_s = time.monotonic()


class ControllerWork:
    def __init__(
        self,
        settings: ControllerActorSettings,
        *,
        client: Callable[[ControllerActorSettings], AsyncClient] | None = None,
    ) -> None:
        self.holder = new_holder()
        self._settings, self._client = settings, client or _client
        self._registry = CollectorRegistry()
        self.counts = CountedMetrics(self._registry)
        self.leadership: Leadership | None = None  # while it runs

    async def run(self, running: Callable[[], None]) -> None:
        """Run until cancelled, then release the lease."""
        settings, clock, allowed = self._settings, Clock(), _allowed_hosts()
        async with (
            self._client(settings) as api,
            target_client(allowed) as http,
            reachable_actuators(http, kubernetes=_kubernetes(settings)) as actuators,
            prometheus_health(allowed=allowed, now=clock.now) as health,
            self._served_metrics(),
        ):
            await api.get_freeze()  # reports a refused token or an unreachable API first
            lease = LeaseSettings(holder=self.holder, lease_s=settings.lease_s, renew_s=settings.lease_s / 3.0)
            self.leadership = Leadership(api=api, settings=lease, clock=clock)
            async with planning_loops(
                api=api,
                leadership=self.leadership,
                registry=self._registry,
                allowed=allowed,
                clock=clock,
                folders=folders_from_environment(),
                observe_only=settings.observe_only,
            ) as planning:
                controller = Controller(
                    api=api,
                    leadership=self.leadership,
                    actuators=actuators,
                    http=http,
                    health=health,
                    metrics=self.counts,
                    settings=ControllerSettings(period_s=settings.period_s, observe_only=settings.observe_only),
                    beside=[planning.advance],
                )
                await self.leadership.renew()  # so that `start` and `upgrade` know the role once the loop runs
                running()
                try:
                    await controller.run()
                finally:
                    await self._release()

    async def _release(self) -> None:
        """Release the lease where the controller was cancelled before its own loop could."""
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await leadership.release()

    @asynccontextmanager
    async def _served_metrics(self) -> AsyncIterator[None]:
        """Serve /metrics during the block, where a port is set."""
        serving = asyncio.create_task(self._serve_metrics()) if self._settings.metrics_port else None
        try:
            yield
        finally:
            if serving is not None:
                serving.cancel()
                await asyncio.wait([serving])

    async def _serve_metrics(self) -> None:
        server, thread = await self._bound()
        try:
            await asyncio.Event().wait()
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    async def _bound(self) -> tuple[WSGIServer, threading.Thread]:
        """Bind the port; retry until it is free, because the old controller has it during an upgrade."""
        host, port = self._settings.metrics_host, self._settings.metrics_port
        logged = False
        while True:
            try:
                return start_http_server(port, addr=host, registry=self._registry)
            except OSError as error:
                if not logged:
                    log.warning("metrics_not_served", host=host, port=port, reason=error.strerror)
                logged = True
            await asyncio.sleep(BIND_RETRY_S)


class ControllerActor:
    """Serves `status`, `stop` and `resume` calls by name from outside."""

    def __init__(self, name: str, generation: int, settings: dict[str, Any]) -> None:
        configure_logs(level="INFO")
        self._settings = ControllerActorSettings.model_validate(settings)
        self._place = own_placement()
        self._work = ControllerWork(self._settings)
        self._loop = LoopThread(self._work.run)
        self._supervisor = NodeSupervisor(
            ControllerName(name, generation),
            cluster=RayCluster(self._place.namespace),
            settings=self._settings.watch,
            own_node_id=self._place.node_id,
            leave=self._exit,
        )
        self.resume()

    def status(self) -> dict[str, Any]:
        leadership, counts = self._work.leadership, self._work.counts
        report = ControllerReport(
            version=version("fleetwright"),
            state=self._loop.state,
            role=(LeaseRole.UNKNOWN if leadership is None else leadership.role).value,
            holder=self._work.holder,
            pid=os.getpid(),
            node_id=self._place.node_id,
            restarted=self._place.restarted,
            since=None if leadership is None else leadership.since,
            reconciles=counts.reconciles,
            reconciles_failed=counts.reconciles_failed,
            last_reconcile_age_s=None
            if counts.last_reconcile_s is None
            else time.monotonic() - counts.last_reconcile_s,
            error=self._loop.error,
            settings=self._settings.model_dump(mode="json"),
            node_actors=self._supervisor.reports,
        )
        return report.model_dump(mode="json")

    def stop(self) -> dict[str, Any]:
        """End the loop and release the lease.  The actor stays, and `resume` starts the loop again."""
        self._supervisor.stop()
        self._loop.stop()
        return self.status()

    def resume(self) -> dict[str, Any]:
        self._loop.start()
        self._supervisor.start()
        return self.status()

    def _exit(self) -> None:
        """End this process, so that Ray starts the actor on another node: Ray restarts only what ended unexpectedly."""
        self._loop.stop()
        os.kill(os.getpid(), signal.SIGKILL)


def _allowed_hosts() -> AllowedHosts:
    """Allow the hosts that this node's environment names, else the usual ones and the head of the Ray cluster."""
    ray = sys.modules.get("ray")  # an extra, which every actor has loaded
    joined = ray is not None and ray.is_initialized()
    head = ray.get_runtime_context().gcs_address.rpartition(":")[0].strip("[]") if ray is not None and joined else ""
    usual = (*CLUSTER_HOSTS, head) if head else CLUSTER_HOSTS
    return AllowedHosts.parse(split_hosts(os.environ.get(TARGET_HOSTS_VARIABLE, "")) or usual)


def _client(settings: ControllerActorSettings) -> AsyncClient:
    """Build a client that reads the token at each attempt, because the token may have been replaced."""
    token = token_from_file(settings.token_file) if settings.token_file else token_from_environment(os.environ)
    return AsyncClient(settings.url, token=token)


def _kubernetes(settings: ControllerActorSettings) -> KubernetesAccess | None:
    return KubernetesAccess(kubeconfig=settings.kubeconfig) if settings.kubernetes or settings.kubeconfig else None
