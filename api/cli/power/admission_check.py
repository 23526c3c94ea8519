"""`fleetwright power admission-check`: admit Kueue's workloads within the power of rows."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.console import note
from api.cli.common.errors import input_errors
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import LogLevel, LogLevelOption, TokenFileOption, UrlOption
from api.cli.common.remote import client_errors, read_token
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.tracing import tracing
from deploy.common.leader_loop import Liveness
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.common.topology_discovery import UnusableSourceError
from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.controller import PowerCheckSettings
from deploy.kueue_power.process import run_power_check

app = new_app()


@app.command("admission-check")
def admission_check(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The power tree, its rows and their label.")],
    act: Annotated[
        bool, typer.Option("--act", help="Write decisions to Kueue; without it, only log and count them.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of the cluster with Kueue.", show_default="as kubectl")
    ] = None,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600.0, help="Between reconciles.")] = 5.0,
    lease_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, max=3600.0, help="Duration of the lease; renewed at a third.")
    ] = 15.0,
    metrics_port: MetricsPortOption = 9410,
    metrics_host: MetricsHostOption = "127.0.0.1",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Admit Kueue's workloads within the power of rows.

    Decides about workloads whose ClusterQueue has an AdmissionCheck with the controllerName fleetwright.io/power.
    """
    file = read_file(config, PowerCheckFile)
    configure_logs(level=log_level)
    with client_errors(url or DEFAULT_URL):
        client = AsyncClient(url or DEFAULT_URL, token=read_token(token_file))
    registry, liveness = CollectorRegistry(), Liveness()
    settings = PowerCheckSettings(act=act, period_s=period_s)
    note(f"power check of {len(file.rows)} rows: {'writes decisions to Kueue' if act else 'writes nothing'}")

    async def work() -> None:
        async with client as api:
            await run_power_check(
                file, settings, api, kubeconfig=kubeconfig, registry=registry, liveness=liveness, lease_s=lease_s
            )

    with (
        tracing("fleetwright-power-check"),
        served_metrics(metrics_host, metrics_port, registry, alive=liveness.is_alive),
        input_errors(UnusableSourceError),
    ):
        asyncio.run(run_until_sigterm(work()))
