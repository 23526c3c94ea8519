"""Serves `/metrics` of a long-running command, and `/healthz` where the command reports its health."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from wsgiref.types import StartResponse, WSGIApplication

import typer
from prometheus_client import CollectorRegistry, start_http_server

from api.cli.common.console import note
from api.cli.common.errors import input_errors

MetricsPortOption = Annotated[
    int, typer.Option(metavar="PORT", min=0, max=65_535, help="Of its own /metrics; 0: none.")
]
MetricsHostOption = Annotated[str, typer.Option(metavar="HOST", help="Address of /metrics.")]


@contextmanager
def served_metrics(
    host: str,
    port: int,
    registry: CollectorRegistry,
    *,
    alive: Callable[[], bool] | None = None,
    late: str = "reconciles are late",
) -> Iterator[None]:
    """Serve metrics during the block, in a thread that responds even while the rest is stuck.  Port 0: no server."""
    if port == 0:
        yield
        return
    with input_errors(OSError, prefix=f"cannot serve /metrics on {host} port {port}: "):
        server, thread = start_http_server(port, addr=host, registry=registry)
    metrics = server.get_app()
    if alive is not None and metrics is not None:
        server.set_app(_with_health(metrics, alive, late))
    note(f"metrics on http://{host}:{port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_health(metrics: WSGIApplication, alive: Callable[[], bool], late: str) -> WSGIApplication:
    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return metrics(environ, start_response)
        well = alive()
        start_response("200 OK" if well else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps({"status": "ok" if well else late}).encode()]

    return app
