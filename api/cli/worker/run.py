"""`fleetwright worker`: does jobs beside the service, with memory of its own."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Annotated

import structlog
import typer
from prometheus_client import CollectorRegistry, ProcessCollector

from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, served_metrics
from api.cli.serve.database import read_settings
from api.jobs.executor import Executor
from api.jobs.metrics import JobMetrics, add_build_info
from api.jobs.outcome import JobLimits
from api.jobs.process import ProcessExecutor
from api.jobs.process_metrics import ProcessMetrics
from api.jobs.ray_tasks import RayExecutor
from api.jobs.worker import Worker, WorkerSettings
from api.schemas.jobs import Lane
from api.server.settings import LogFormat, Settings
from api.store import Store
from api.tracing import tracing
from deploy.common.logs import configure_logs

app = new_app()
log = structlog.get_logger(__name__)


@app.command()
def worker(
    metrics_host: MetricsHostOption = "127.0.0.1",
    metrics_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Of its own /metrics; 0: none.")
    ] = 9408,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Unique among workers.", show_default="a random one")
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", hidden=True, help="End with the service whose metrics have these too.")
    ] = False,
) -> None:
    """Do the jobs of the service: plans, placements, simulations.

    Needs FLEETWRIGHT_DATABASE_URL, as the service does. `fleetwright serve` on SQLite starts its own worker.
    """
    settings = read_settings()
    console = settings.log_format is LogFormat.CONSOLE
    configure_logs(level=settings.log_level, libraries=settings.log_level, console=console)
    registry = CollectorRegistry()
    if embedded:
        ProcessCollector(registry=registry, namespace="fleetwright_worker")
    else:
        add_build_info(registry)
    with tracing("fleetwright-worker"):
        asyncio.run(_work(settings, registry, metrics_at=(metrics_host, metrics_port), name=name, embedded=embedded))


async def _work(
    settings: Settings,
    registry: CollectorRegistry,
    *,
    metrics_at: tuple[str, int],
    name: str | None,
    embedded: bool,
) -> None:
    store = Store(settings.database_url.get_secret_value())
    own = worker_settings(settings)
    if name is not None:
        own = WorkerSettings(**{field: getattr(own, field) for field in own.__slots__} | {"id": name})
    executor: Executor = ProcessExecutor()
    if settings.job_ray_address is not None:
        executor = RayExecutor(address=settings.job_ray_address, local=executor)
    running = Worker(
        store=store,
        executor=executor,
        settings=own,
        metrics=JobMetrics(registry),
        now=lambda: datetime.now(UTC),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.stop)
    if embedded:
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 1) else running.stop())
    measuring = None
    if not embedded:
        measuring = asyncio.create_task(ProcessMetrics(registry, store).measure_loop(stopped_within=_not_stopped))
    try:
        with served_metrics(*metrics_at, registry, alive=running.is_alive, late="beats are late"):
            await running.run()
    finally:
        if measuring is not None:
            measuring.cancel()
        await store.close()


async def _not_stopped(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False


def worker_settings(settings: Settings) -> WorkerSettings:
    """Return what a worker needs of the service's settings."""
    return WorkerSettings(
        slots={Lane.SAFETY: 1, Lane.READS: 1, Lane.WORK: settings.plan_concurrency},
        database_url=settings.database_url.get_secret_value(),
        memory_mib=settings.job_memory_mib,
        limits=JobLimits(
            simulation_server_days=settings.simulation_server_days,
            fault_simulation_rank_hours=settings.fault_simulation_rank_hours,
            fault_simulation_ranks=settings.fault_simulation_ranks,
            replayed_requests=settings.plan_replayed_requests,
            sweep_points=settings.sweep_points,
        ),
        reuse_s=settings.result_reuse_s,
    )
