"""The router as the ingress of a Ray Serve application.

    engines = {"on-h100": engine("H100"), "on-l4": engine("L4")}     # bound deployments, one per GPU type
    app = behind_router(engines)

The table is in Serve's `user_config` of the deployment `Router`, `{"table": ..., "watts": ...}` (`RouterConfig`).
Serve passes a new one to the running replicas without a restart.  An unusable config is refused, and the old one stays;
only a replica without any config fails, and Serve then fails the deployment.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deploy.common.errors import PlanUnusableError
from deploy.common.thread_calls import BlockingCalls
from deploy.router.errors import NoReplicasError, UpstreamError
from deploy.router.ingress import refuse
from deploy.router.metrics import RayServeBackend
from deploy.router.openai import ProxiedRequest
from deploy.router.proxy import Head
from deploy.router.router import ReplicaCounts, Router, serve_lifespan
from deploy.router.settings import SERVE_NAME, TABLE_PATH, RouterConfig, RouterSettings
from deploy.router.table import RoutingTable
from fleetwright.expert_rollout.serve_engine import PATH as MAPS_PATH
from fleetwright.expert_rollout.serve_engine import StatusEndpoint
from fleetwright.serve import METHOD, Receive, Send, is_request_for, send_json

log = structlog.get_logger()

# A replica that takes another user_config (UPDATING) is out of routing for a moment, and one that a restarted Serve
# controller has yet to find (RECOVERING) is not; requests wait.  One on a draining node (PENDING_MIGRATION) serves.
PRESENT = ("RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION")
MAX_RESPONSE_S = 900.0  # time of a replica that stops to finish its responses
STATUS_S = 10.0  # for Serve's status, which may never arrive
MAX_AT_ONCE = 100_000  # requests in one replica: the router has the queue, not Serve


def present(replica_states: Mapping[str, int]) -> int:
    """Return the replicas of a deployment that serve now or in a moment, by Serve's counts of replica states."""
    return sum(replica_states.get(state, 0) for state in PRESENT)


class ServeUpstreamResponse:
    def __init__(self, generator: Any, head: Head, *, name: str) -> None:
        self.head = head
        self._generator = generator
        self._name = name
        self._over = False

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._generator:
                yield chunk
        except (RayError, RayServeException) as error:
            raise UpstreamError(f"{self._name} failed during its response: {type(error).__name__}") from error
        self._over = True

    def close(self) -> None:
        if not self._over:
            self._generator.cancel()


class ServeUpstream:
    """Sends requests to one deployment of the same application by its handle.  Serve chooses the replica.

    The engine implements one asynchronous generator (`fleetwright.serve` makes it from any ASGI application): it
    yields status and headers first, then the parts of the body.
    """

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._method = handle.options(method_name=METHOD, stream=True)
        self._pending: set[asyncio.Future[Any]] = set()

    async def send(self, request: ProxiedRequest) -> ServeUpstreamResponse:
        """Send once a replica has a slot.  Without a replica, a handle waits for ever (see `abandon`)."""
        generator = self._method.remote(request.method, request.target, list(request.headers), request.body)
        pending = asyncio.ensure_future(anext(aiter(generator)))
        pending.add_done_callback(_retrieve_exception)
        self._pending.add(pending)
        try:
            await asyncio.wait({pending})
        except asyncio.CancelledError:  # by the caller, in any state of the call
            pending.cancel()
            generator.cancel()
            raise
        finally:
            self._pending.discard(pending)
        if pending.cancelled():
            generator.cancel()
            raise UpstreamError(f"{self._name} has no replica")
        try:
            status, headers = pending.result()
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise UpstreamError(f"{self._name} did not respond: {type(error).__name__}") from error
        return ServeUpstreamResponse(generator, Head(status=status, headers=headers), name=self._name)

    def abandon(self) -> None:
        """Cancel requests that wait for a replica or for the response of a last one that drains."""
        for pending in self._pending:
            pending.cancel()

    async def close(self) -> None:
        """Handles need no closing."""


@dataclass
class App:
    """The ASGI application: the router, once there is a table."""

    router: Router | None = None
    maps: StatusEndpoint | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, start=_nothing, stop=self._stop)
        elif self.maps is not None and is_request_for(MAPS_PATH, scope):
            await self.maps(scope, send)
        elif self.router is not None and is_request_for(TABLE_PATH, scope):
            await send_json(send, 200, {"version": self.router.table.version})
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
    def __init__(self, engines: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self._engines = engines
        self._settings = RouterSettings.model_validate(settings)
        self._calls = BlockingCalls(limit_s=STATUS_S)
        self._app = App(maps=StatusEndpoint(engines) if self._settings.expose_expert_maps else None)

    def __serve_build_asgi_app__(self) -> App:
        return self._app

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        router = self._app.router
        try:
            received = RouterConfig.model_validate(config)
            if router is not None:
                await router.take(received.table)
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
        **{"graceful_shutdown_timeout_s": MAX_RESPONSE_S} | first | options,
    )
    return deployment.bind(dict(engines), (settings or RouterSettings()).model_dump(mode="json"))


def _retrieve_exception(pending: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a call whose caller has gone, so that asyncio does not log it."""
    if not pending.cancelled():
        pending.exception()


async def _nothing() -> None:
    """The router starts with its first table."""
