"""`fleetwright serve`: run the API, and on SQLite the controller inside it and a worker as its child."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import structlog
import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from api.cli.common.console import note, print_line
from api.cli.common.errors import input_errors
from api.cli.common.lazy_groups import new_app
from api.cli.common.sockets import listen
from api.cli.serve.database import open_migrations, read_settings, sole_server
from api.cli.serve.embedded_worker import keep_worker
from api.cli.serve.inprocess_controller import controller_token, run_controller
from api.cli.serve.tls import keep_certificate, tls_options
from api.server import Settings, StaticToken, create_app
from api.server.front import FrontLimits, front_config, within_file_limit
from api.server.settings import LogFormat
from api.server.tokens import BootstrapTokenError
from api.store import Store
from api.tracing import tracing
from deploy.common.logs import configure_logs

SHUTDOWN_GRACE_S = 20  # for requests in flight
SHUTDOWN_REPLY_S = 2.0

app = new_app()
log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """Runs background work while uvicorn listens."""

    def __init__(self, service: FastAPI, config: uvicorn.Config, *beside: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._service = service
        self._beside = beside
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then start the background work."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process: full collections would stop the loop to search it
        self._tasks = [asyncio.create_task(self._watched(work)) for work in self._beside]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the background work, then the parts that it uses.  uvicorn cancels what its grace period did not end."""
        self._service.state.service.jobs.stop_waiting()
        self._service.state.service.events.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._service.state.stopping.set()
        await super().shutdown(sockets)
        if self.server_state.tasks:  # they still send their clients that the service shuts down
            await asyncio.wait(self.server_state.tasks, timeout=SHUTDOWN_REPLY_S)

    async def _watched(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            # Fail, so that an orchestrator restarts the service: nothing would be reconciled otherwise.
            log.exception("background work failed")
            self.should_exit = True


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on; 0: any free one.", show_default="8400")
    ] = None,
    controller: Annotated[
        bool | None,
        typer.Option("--controller/--no-controller", help="Run the controller too.", show_default="on SQLite"),
    ] = None,
    worker: Annotated[
        bool | None,
        typer.Option("--worker/--no-worker", help="Run a worker for jobs too, as a process.", show_default="on SQLite"),
    ] = None,
    anonymous_read: Annotated[
        bool | None, typer.Option("--anonymous-read", help="Reading needs no token. Only on loopback.")
    ] = None,
    insecure_no_auth: Annotated[
        bool | None, typer.Option("--insecure-no-auth", help="No request needs a token. Only on loopback.")
    ] = None,
) -> None:
    """Serve the API, on SQLite with a controller and a worker.

    Environment variables hold all settings, such as FLEETWRIGHT_DATABASE_URL; options take precedence.
    """
    settings = read_settings(host=host, port=port, anonymous_read=anonymous_read, insecure_no_auth=insecure_no_auth)
    console = settings.log_format is LogFormat.CONSOLE
    configure_logs(level=settings.log_level, libraries=settings.log_level, console=console)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with sole_server(settings), tracing("fleetwright-api"), runner:
        runner.run(_serve(settings, with_controller=controller, with_worker=worker))


async def _serve(settings: Settings, *, with_controller: bool | None, with_worker: bool | None) -> None:
    database_url = settings.database_url.get_secret_value()
    embedded = database_url.startswith("sqlite")
    with open_migrations(settings) as migrations:
        schema_head = migrations.head
        if embedded:  # one process owns SQLite; an operator migrates a shared database by `fleetwright migrate up`
            await asyncio.to_thread(migrations.upgrade)
    token = controller_token()
    service = _create_app(settings, schema_head=schema_head, token=token)
    listener = listen(settings.host, settings.port)
    beside: list[Callable[[], Awaitable[None]]] = [partial(_print_url, settings, listener)]
    if with_controller if with_controller is not None else embedded:
        beside.append(partial(run_controller, service, token))
    if with_worker if with_worker is not None else embedded:
        beside.append(partial(keep_worker, settings, service.state.service.metrics.pages))
    config = front_config(
        service,
        limits=within_file_limit(FrontLimits(connections=settings.max_connections)),
        observe_refusal=service.state.service.metrics.observe_refusal,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        **tls_options(settings),
    )
    if settings.tls_cert_file is not None:
        beside.append(partial(keep_certificate, config, settings))
    await _Server(service, config, *beside).serve(sockets=[listener])


def _create_app(settings: Settings, *, schema_head: str, token: StaticToken) -> FastAPI:
    with input_errors(BootstrapTokenError):
        return create_app(
            settings=settings,
            store=Store(settings.database_url.get_secret_value()),
            schema_head=schema_head,
            static_tokens=[token],
            show_first_token=None if settings.insecure_no_auth else _show_first_token,
        )


async def _print_url(settings: Settings, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_cert_file is not None else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    bearer = "" if settings.allows_anonymous else " -H 'Authorization: Bearer TOKEN'"
    print_line(f"Fleetwright listens on {url}\nTry:  curl{bearer} {url}/v1/gpus")


def _show_first_token(secret: str) -> None:
    # Not in the log: logs are stored and shipped.
    note(f"First start: this is the admin token. It is shown once.\n\n    {secret}\n")
