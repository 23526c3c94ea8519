"""The process of a fault monitor: its loop, API reporter and HTTP routes.

Batches come in; health, diagnoses and metrics go out.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import ClientDisconnect

from api.client import AsyncClient
from deploy.common.http_server import BodyLimit, ServerTls, bearer, serve_beside
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorLoop, new_monitor_loop
from deploy.telemetry.batch_codec import MAX_BODY_BYTES, BaseMissingError, WireError
from fleetwright.telemetry.batch_format import PATH

MAX_BODY_S: Final = 10.0


def monitor_app(loop: MonitorLoop, *, registry: CollectorRegistry, token: str | None) -> FastAPI:
    """Build the application of one running loop.  All routes but health and metrics need the token."""
    app = FastAPI(title="Fleetwright fault monitor", openapi_url=None)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    guarded = [Depends(bearer(token))]

    @app.post(PATH, dependencies=guarded)
    async def observations(request: Request) -> Response:
        try:
            body = await asyncio.wait_for(request.body(), MAX_BODY_S)
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


@dataclass(frozen=True, slots=True)
class ReportTarget:
    client: AsyncClient
    names: Sequence[str]


async def run_monitor(
    file: JobConfig,
    listener: socket.socket,
    *,
    token: str | None,
    out: TextIO,
    bundles: Path | None,
    report_to: ReportTarget | None = None,
    tls: ServerTls | None = None,
) -> None:
    """Run until SIGTERM, then write the due bundles and reports."""
    registry = CollectorRegistry()
    client, names = (report_to.client, report_to.names) if report_to is not None else (None, ())
    loop = new_monitor_loop(file, registry=registry, out=out, bundles=bundles, client=client, names=names)
    with _ignoring_second_sigterm():
        try:
            app = monitor_app(loop, registry=registry, token=token)
            await serve_beside(app, listener, _both(loop), tls=tls)
        finally:
            await loop.finish()
            if loop.reporter is not None:
                await loop.reporter.finish()
                await loop.reporter.client.close()


def _refused(status: int, title: str, detail: str) -> Response:
    return JSONResponse({"title": title, "status": status, "detail": detail}, status)


async def _both(loop: MonitorLoop) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.run())
        if loop.reporter is not None:
            tasks.create_task(loop.reporter.run())


@contextmanager
def _ignoring_second_sigterm() -> Iterator[None]:
    """Ignore the second SIGTERM: the server stops at the first one and raises it again, which would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
