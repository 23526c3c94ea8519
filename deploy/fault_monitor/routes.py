"""HTTP routes of a fault monitor: batches in; health, diagnoses and metrics out."""

import asyncio
from typing import Final

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import ClientDisconnect

from deploy.common.auth import bearer
from deploy.common.body_limit import BodyLimit
from deploy.fault_monitor.loop import MonitorLoop
from deploy.telemetry.batch_codec import MAX_BODY_BYTES, BaseMissingError, WireError
from fleetwright.telemetry.batch_format import PATH

SLOWEST_BODY_S: Final = 10.0


def monitor_app(loop: MonitorLoop, *, registry: CollectorRegistry, token: str | None) -> FastAPI:
    """Build the application of one running loop.  All routes but health and metrics need the token."""
    app = FastAPI(title="Fleetwright fault monitor", openapi_url=None)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    guarded = [Depends(bearer(token))]

    @app.post(PATH, dependencies=guarded)
    async def observations(request: Request) -> Response:
        try:
            body = await asyncio.wait_for(request.body(), SLOWEST_BODY_S)
            loop.receive(body)
        except BaseMissingError as error:
            return _refused(409, "Conflict", str(error))
        except WireError as error:
            return _refused(422, "Unprocessable Content", str(error))
        except (TimeoutError, ClientDisconnect):
            return _refused(408, "Request Timeout", "the body did not arrive in time")
        return Response(status_code=204)

    @app.get("/v1/diagnoses", dependencies=guarded)
    async def diagnoses() -> Response:
        return JSONResponse([diagnosis.model_dump(mode="json") for diagnosis in loop.diagnoses])

    @app.get("/healthz")
    async def healthz() -> Response:
        alive = loop.is_alive()
        return JSONResponse({"status": "ok" if alive else "evaluations are late"}, 200 if alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _refused(status: int, title: str, detail: str) -> Response:
    return JSONResponse({"title": title, "status": status, "detail": detail}, status)
