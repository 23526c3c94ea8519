"""The router as the ingress of a Ray Serve application.

    engines = {"on-h100": engine("H100"), "on-l4": engine("L4")}     # bound deployments, one per GPU type
    app = behind_router(engines)

The table is in Serve's `user_config` of the deployment `Router`, `{"table": ..., "watts": ...}` (`RouterConfig`).
Serve passes a new one to the running replicas without a restart.  An unusable config is refused, and the old one stays;
only a replica without any config fails, and Serve then fails the deployment.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError
from ray import serve

from deploy.common.errors import PlanUnusableError
from deploy.common.thread_calls import BlockingCalls
from deploy.router.errors import NoReplicasError
from deploy.router.ingress import refuse
from deploy.router.metrics_backend import RayServeBackend
from deploy.router.over_serve import ServeUpstream, present
from deploy.router.router import ReplicaCounts, Router, serve_lifespan
from deploy.router.settings import SERVE_NAME, TABLE_PATH, RouterConfig, RouterSettings
from deploy.router.table import RoutingTable
from fleetwright.asgi import Receive, Send, answer_json, asks_for
from fleetwright.expert_rollout.status_endpoint import PATH as MAPS_PATH
from fleetwright.expert_rollout.status_endpoint import StatusEndpoint

log = structlog.get_logger()

LONGEST_ANSWER_S = 900.0  # time of a replica that stops to finish its responses
STATUS_S = 10.0  # for Serve's status, which may never arrive
MAX_AT_ONCE = 100_000  # requests in one replica: the router has the queue, not Serve


@dataclass
class App:
    """The ASGI application: the router, once there is a table."""

    router: Router | None = None
    maps: StatusEndpoint | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, start=_nothing, stop=self._stop)
        elif self.maps is not None and asks_for(MAPS_PATH, scope):
            await self.maps(scope, send)
        elif self.router is not None and asks_for(TABLE_PATH, scope):
            await answer_json(send, 200, {"version": self.router.table.version})
        elif self.router is not None:
            await self.router(scope, receive, send)
        else:
            await refuse(
                NoReplicasError("this router has no table yet: its user_config is empty", retry_after_s=1), send
            )

    async def _stop(self) -> None:
        if self.router is not None:
            await self.router.stop()


class RouterReplica:
    """One replica of the ingress."""

    def __init__(self, engines: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self._engines = engines
        self._settings = RouterSettings.model_validate(settings)
        self._calls = BlockingCalls(limit_s=STATUS_S)
        self._app = App(maps=StatusEndpoint(engines) if self._settings.tell_expert_maps else None)

    def __serve_build_asgi_app__(self) -> App:
        """Serve's hook."""
        return self._app

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Apply Serve's `user_config`, at the start and whenever it changes."""
        router = self._app.router
        try:
            received = RouterConfig.model_validate(config)
            if router is not None:
                router.take(received.table)
        except (ValidationError, PlanUnusableError) as error:
            if router is None:
                raise
            if isinstance(error, ValidationError):
                router.metrics.table_refused()
            log.warning("config_refused", reason=str(error))
            return
        router = router or await self._started(received.table)
        router.set_power_source(received.watts)

    async def _started(self, table: RoutingTable) -> Router:
        router = Router(
            table=table,
            upstreams={name: ServeUpstream(name, handle) for name, handle in self._engines.items()},
            settings=self._settings,
            backend=RayServeBackend(),
            count_replicas=self._count_replicas,
        )
        await router.start()
        self._app.router = router
        return router

    async def _count_replicas(self) -> ReplicaCounts:
        application = serve.get_replica_context().app_name
        status = await self._calls.call("Serve's status", serve.status)
        deployments = status.applications[application].deployments
        running = {name: present(deployment.replica_states) for name, deployment in deployments.items()}
        return ReplicaCounts(
            replicas={name: running.get(name, 0) for name in self._engines}, routers=running.get(SERVE_NAME, 1)
        )


def behind_router(
    engines: Mapping[str, Any],
    *,
    config: RouterConfig | None = None,
    settings: RouterSettings | None = None,
    **options: Any,
) -> Any:
    """Return an application of bound deployments, named as the table's routes; `options` go to Serve's deployment."""
    first = {} if config is None else {"user_config": config.model_dump(mode="json")}
    deployment = serve.deployment(
        serve.ingress()(RouterReplica),
        name=SERVE_NAME,
        max_ongoing_requests=MAX_AT_ONCE,
        **{"graceful_shutdown_timeout_s": LONGEST_ANSWER_S} | first | options,
    )
    return deployment.bind(dict(engines), (settings or RouterSettings()).model_dump(mode="json"))


async def _nothing() -> None:
    """The router starts with its first table."""
