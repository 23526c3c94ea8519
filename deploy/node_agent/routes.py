"""The agent's HTTP face."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import structlog
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from deploy.common.http_server import BodyLimit, ServerTls, bearer, server_of
from deploy.node_agent.agent import TICK_S, NodeAgent
from deploy.node_agent.cap_lease import HeldByAnotherError
from deploy.node_agent.gpu.errors import NotSupportedError, OutOfRangeError
from deploy.node_agent.gpu.interface import NO_CAPS, Caps
from deploy.node_agent.gpu.node import GUARD, GpuNode
from deploy.node_agent.gpu.reporting import GpuMetrics, report_of
from deploy.node_agent.schemas import (
    BEAT_PATH,
    BRAKE_PATH,
    CAPS_PATH,
    CLOCKS_PATH,
    GPUS_PATH,
    PHASE_PATH,
    TELEMETRY_PATH,
    Beat,
    BrakeCommand,
    CapsRequest,
    ClocksCommand,
    NodeReport,
    NodeTelemetry,
    PhaseRequest,
)

log = structlog.get_logger()

MAX_BYTES = 4096  # of a command


def agent_app(
    agent: NodeAgent,
    *,
    token: str | None,
    gpus: GpuNode | None = None,
    beside: AbstractContextManager[None] | None = None,
) -> FastAPI:
    """Build the application of one node's agent, which also checks the guard's lease periodically.

    With `gpus`, the agent's device, it takes caps too, and restores every cap at its end.  `beside` runs meanwhile, and
    ends last.
    """

    @asynccontextmanager
    async def ticking(_app: FastAPI) -> AsyncIterator[None]:
        if gpus is not None:
            gpus.start()
        agent.tick()  # safe clocks before the first response
        task = asyncio.create_task(_tick_for_ever(agent))
        with beside or nullcontext():
            try:
                yield
            finally:
                task.cancel()
                if gpus is not None:
                    await asyncio.to_thread(gpus.stop)

    app = FastAPI(
        title="Fleetwright node agent", lifespan=ticking, openapi_url=None, dependencies=[Depends(bearer(token))]
    )
    app.add_exception_handler(HeldByAnotherError, _held_by_another)
    app.add_exception_handler(OSError, _device_refused)
    for unfit in (OutOfRangeError, NotSupportedError):
        app.add_exception_handler(unfit, _unfit)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BYTES)

    @app.get(TELEMETRY_PATH)
    async def telemetry() -> NodeTelemetry:
        return agent.telemetry()

    @app.post(BEAT_PATH)
    async def beat(body: Beat) -> NodeTelemetry:
        return agent.renew(body)

    @app.put(CLOCKS_PATH)
    async def clocks(body: ClocksCommand) -> NodeTelemetry:
        return agent.set_clocks(body)

    @app.post(BRAKE_PATH)
    async def brake(body: BrakeCommand) -> NodeTelemetry:
        return agent.brake(body)

    if gpus is not None:
        app.include_router(caps_routes(gpus, server=agent.server))
    return app


async def _tick_for_ever(agent: NodeAgent) -> None:
    while True:
        try:
            agent.tick()
        except Exception:
            # The switch has to work at the next tick.
            log.exception("tick_failed", server=agent.server)
        await asyncio.sleep(TICK_S)


def caps_routes(node: GpuNode, *, server: str) -> APIRouter:
    """Return the routes of an agent with GPUs; the including application checks the token."""
    router = APIRouter()
    registry = CollectorRegistry()
    registry.register(GpuMetrics(node, server=server))

    @router.get(GPUS_PATH)
    def gpus() -> NodeReport:
        return report_of(node, server=server)

    @router.put(CAPS_PATH)
    def hold(body: CapsRequest) -> NodeReport:
        caps = Caps(body.power_limit_w, body.clock_mhz)
        if caps == NO_CAPS and body.clock_share is None:
            raise OutOfRangeError("power_limit_w, clock_mhz, clock_share: at least one is needed; DELETE releases")
        if body.holder == GUARD:
            raise OutOfRangeError(f"holder: {GUARD!r} is reserved for /v1/clocks")
        node.cap_controller.request(
            body.holder,
            caps,
            share=body.clock_share,
            uuids=body.gpus,
            until_s=node.now_s() + body.lease_s,
            on_expiry=body.on_expiry,
        )
        node.wake()
        return report_of(node, server=server)

    @router.delete(CAPS_PATH + "/{holder}")
    def release(holder: str) -> NodeReport:
        if holder == GUARD or not node.cap_controller.release(holder):
            raise HTTPException(404, f"{holder!r} has no caps here")
        node.wake()
        return report_of(node, server=server)

    @router.put(PHASE_PATH)
    def phase(body: PhaseRequest) -> NodeReport:
        node.phases.report(body.worker, body.phase.phase, until_s=node.now_s() + body.lease_s)
        node.wake()
        return report_of(node, server=server)

    @router.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


async def _held_by_another(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"title": "Conflict", "status": 409, "detail": str(error)}, 409)


async def _device_refused(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"title": "Bad Gateway", "status": 502, "detail": str(error)}, 502)


async def _unfit(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"title": "Unprocessable Content", "status": 422, "detail": str(error)}, 422)


async def run_agent(
    agent: NodeAgent,
    listener: socket.socket,
    *,
    token: str | None,
    gpus: GpuNode | None = None,
    tls: ServerTls | None = None,
    beside: AbstractContextManager[None] | None = None,
) -> None:
    """Run the agent of a node until it is stopped, and `beside` with it."""
    await server_of(agent_app(agent, token=token, gpus=gpus, beside=beside), tls=tls).serve(sockets=[listener])
