"""The agent's HTTP face."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from deploy.guard.agent import TICK_S, NodeAgent
from deploy.guard.bearer import bearer
from deploy.guard.bodies import BodyLimit
from deploy.guard.wire import (
    BEAT_PATH,
    BRAKE_PATH,
    CLOCKS_PATH,
    TELEMETRY_PATH,
    Beat,
    BrakeOrder,
    ClocksOrder,
    NodeTelemetry,
)
from power.guard import NotTheGuardError

log = structlog.get_logger()

MOST_BYTES = 4096  # of an order


def agent_app(agent: NodeAgent, *, token: str | None) -> FastAPI:
    """An application that answers for one node and keeps its dead man's switch."""

    @asynccontextmanager
    async def ticking(_app: FastAPI) -> AsyncIterator[None]:
        agent.tick()  # slow before it answers anybody
        task = asyncio.create_task(_tick_for_ever(agent))
        try:
            yield
        finally:
            task.cancel()
            agent.leave()

    app = FastAPI(
        title="Fleetwright node agent", lifespan=ticking, openapi_url=None, dependencies=[Depends(bearer(token))]
    )
    app.add_exception_handler(NotTheGuardError, _held_by_another)
    app.add_exception_handler(OSError, _device_refused)
    app.add_middleware(BodyLimit, limit_bytes=MOST_BYTES)

    @app.get(TELEMETRY_PATH)
    async def telemetry() -> NodeTelemetry:
        return agent.telemetry()

    @app.post(BEAT_PATH)
    async def beat(body: Beat) -> NodeTelemetry:
        return agent.heard(body)

    @app.put(CLOCKS_PATH)
    async def clocks(body: ClocksOrder) -> NodeTelemetry:
        return agent.set_clocks(body)

    @app.post(BRAKE_PATH)
    async def brake(body: BrakeOrder) -> NodeTelemetry:
        return agent.brake(body)

    return app


async def _tick_for_ever(agent: NodeAgent) -> None:
    while True:
        try:
            agent.tick()
        except Exception:
            # The switch has to work at the next tick.
            log.exception("tick_failed", server=agent.server)
        await asyncio.sleep(TICK_S)


async def _held_by_another(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"title": "Conflict", "status": 409, "detail": str(error)}, 409)


async def _device_refused(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"title": "Bad Gateway", "status": 502, "detail": str(error)}, 502)
