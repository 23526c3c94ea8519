"""`fleetwright router`: run the ingress of one model, a process in front of HTTP engines."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.console import note
from api.cli.common.errors import input_errors
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import served_metrics
from api.cli.common.options import LogLevel, LogLevelOption
from api.cli.common.sockets import HostOption, TlsCertOption, TlsKeyOption, listen, scheme_of, server_tls
from deploy.common.logs import configure_logs
from deploy.common.topology_discovery import UnusableSourceError
from deploy.router.process import RouterFile, run_router
from deploy.router.table import RoutingTable

app = new_app()


@app.command()
def router(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Engines, file of the table, limits.")],
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="For callers; 0: any free one.")] = 9405,
    metrics_port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65_535, help="Of /metrics.")] = 9406,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Send each request to the deployment that its plan assigns.

    The router implements the OpenAI protocol and forwards bodies unchanged.  The file of the table may change at any
    time.
    """
    file = read_file(config, RouterFile)
    table = read_file(file.table_file, RoutingTable)
    tls = server_tls(tls_cert, tls_key)
    listener = listen(host, port)
    registry = CollectorRegistry()
    address, number = listener.getsockname()[:2]
    routes = ", ".join(sorted(table.routes))
    with served_metrics(host, metrics_port, registry):
        note(f"router of {table.version}: {routes}; {scheme_of(tls)}://{address}:{number}/v1")
        configure_logs(level=log_level)
        with input_errors(UnusableSourceError):
            asyncio.run(run_router(file, listener, registry=registry, tls=tls))
