"""The controller as an actor runs it: made anew from its settings at each try, and what it has done since."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from wsgiref.simple_server import WSGIServer

import httpx
import structlog
from prometheus_client import CollectorRegistry, start_http_server

from api.client import ApiError, AsyncClient, token_from_environment, token_from_file
from deploy.actuators.registry import reachable_actuators
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess
from deploy.common.leader_election import Leadership, LeaseSettings, Standing, new_holder
from deploy.controller.controller import Controller, ControllerSettings
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.prometheus_health import prometheus_health
from deploy.ray_actor.messages import HostSettings

log = structlog.get_logger()

GIVE_BACK_S: Final = 5.0
BIND_AGAIN_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a controller has done, at one moment."""

    standing: Standing = Standing.UNKNOWN
    since: datetime | None = None
    rounds: int = 0
    rounds_failed: int = 0
    last_round_s: float | None = None  # by the steady clock


class RoundCounts(ControllerMetrics):
    """The controller's metrics, and the same for whoever asks the actor."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._lock = threading.Lock()
        self.rounds = self.rounds_failed = 0
        self.last_round_s: float | None = None
        self.since: datetime | None = None

    def round_ended(self, *, ok: bool, duration_s: float) -> None:
        """A round is over."""
        super().round_ended(ok=ok, duration_s=duration_s)
        with self._lock:
            self.rounds += ok
            self.rounds_failed += not ok
            self.last_round_s = time.monotonic()

    def leads(self, *, leads: bool) -> None:
        """Whether it is this one's to act."""
        super().leads(leads=leads)
        with self._lock:
            self.since = (self.since or datetime.now(UTC)) if leads else None


class Controlling:
    """One controller's work, for `LoopThread`."""

    def __init__(
        self, settings: HostSettings, *, client: Callable[[HostSettings], AsyncClient] | None = None
    ) -> None:
        self.holder = new_holder()
        self._settings, self._client = settings, client or _client
        self._registry = CollectorRegistry()
        self._counts = RoundCounts(self._registry)
        self._leadership: Leadership | None = None

    def done(self) -> Done:
        """Until now."""
        leadership, counts = self._leadership, self._counts
        standing = Standing.UNKNOWN if leadership is None else leadership.standing
        return Done(
            standing=standing,
            since=counts.since if standing is Standing.LEADS else None,
            rounds=counts.rounds,
            rounds_failed=counts.rounds_failed,
            last_round_s=counts.last_round_s,
        )

    async def run(self, begun: Callable[[], None]) -> None:
        """Until cancelled; then the lease is given back."""
        told, clock = self._settings, Clock()
        async with (
            self._client(told) as api,
            httpx.AsyncClient() as http,
            reachable_actuators(http, kubernetes=_kubernetes(told)) as actuators,
            prometheus_health(now=clock.now) as health,
            self._served_metrics(),
        ):
            await api.get_freeze()  # a token that is not taken, and an API that is not there, are told first
            lease = LeaseSettings(holder=self.holder, lease_s=told.lease_s, renew_s=told.lease_s / 3.0)
            self._leadership = Leadership(api=api, settings=lease, clock=clock)
            controller = Controller(
                api=api,
                leadership=self._leadership,
                actuators=actuators,
                http=http,
                health=health,
                metrics=self._counts,
                settings=ControllerSettings(period_s=told.period_s, observe_only=told.observe_only),
            )
            await self._leadership.renew()  # so that whoever waits for it to be up is told whether it leads
            begun()
            try:
                await controller.run()
            finally:
                await self._let_go()

    async def _let_go(self) -> None:
        """Give the lease back where the controller was ended before it had begun to hold it; else it is done."""
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(GIVE_BACK_S):
                    await leadership.give_back()

    @asynccontextmanager
    async def _served_metrics(self) -> AsyncIterator[None]:
        """/metrics while the block lasts, where it is asked for."""
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
        """While an upgrade is under way the port is the old one's: it is tried until it is free."""
        host, port = self._settings.metrics_host, self._settings.metrics_port
        told = False
        while True:
            try:
                return start_http_server(port, addr=host, registry=self._registry)
            except OSError as error:
                if not told:
                    log.warning("metrics_not_served", host=host, port=port, reason=error.strerror)
                told = True
            await asyncio.sleep(BIND_AGAIN_S)


def _client(told: HostSettings) -> AsyncClient:
    """The token is read here, at each try: it may have been replaced."""
    token = token_from_file(told.token_file) if told.token_file else token_from_environment(os.environ)
    return AsyncClient(told.url, token=token)


def _kubernetes(told: HostSettings) -> KubernetesAccess | None:
    return KubernetesAccess(kubeconfig=told.kubeconfig) if told.kubernetes or told.kubeconfig else None
