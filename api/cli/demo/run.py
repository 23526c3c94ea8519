"""`fleetwright demo`: run the whole product on this machine, without a GPU."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from fastapi import FastAPI

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_INTERRUPTED, EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.serve.database import open_migrations, read_settings
from api.cli.serve.inprocess_controller import URL, controller_token, run_controller
from api.cli.worker.run import worker_settings
from api.client import AsyncClient, InProcessTransport
from api.jobs.metrics import JobMetrics
from api.jobs.process import ProcessExecutor
from api.jobs.worker import Worker
from api.schemas.tokens import TokenScope
from api.server import Principal, StaticToken, create_app
from api.store import Store
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.controller.reconcile import ControllerSettings
from deploy.emulator.demo import ActResult, Demo
from deploy.emulator.ray_sandbox import Sandbox, existing_sandbox, local_sandbox
from deploy.emulator.scenario import ACTS, MAX_GPUS, accelerators

PERIOD_S = 1.0  # of the controller, short to keep the demo short
PATIENCE_S = 300.0

app = new_app()


@app.command()
def demo(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Dashboard of a Ray cluster whose head is this machine and whose Serve is idle."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.5, max=3600.0, help="To measure each plan once it is in place.")
    ] = 6.0,
    time_scale: Annotated[
        float, typer.Option(metavar="FACTOR", min=0.1, max=100.0, help="Model seconds per second.")
    ] = 3.0,
    acts: Annotated[int, typer.Option(metavar="N", min=1, max=len(ACTS), help="How many acts to play.")] = len(ACTS),
    output: FormatOption = Format.TABLE,
) -> None:
    """Play a day of a chat on simulated GPUs: plan, apply, measure.

    Starts Ray on loopback, the service on SQLite and its controller, plays the acts under load, and removes everything.
    Exits with 1 if a plan was not in place at the end of its act, or a request was lost.
    """
    configure_logs(level="ERROR")
    results = asyncio.run(run_until_sigterm(_play(address, seconds, time_scale, acts, output)))
    if results is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    good = all(result.as_planned for result in results)
    if output is Format.JSON:
        print_json({"ok": good, "acts": [result.model_dump(mode="json") for result in results]})
    if not good:
        raise typer.Exit(EXIT_NEGATIVE)


async def _play(address: str | None, seconds: float, time_scale: float, acts: int, output: Format) -> list[ActResult]:
    write = print_line if output is Format.TABLE else note
    write("Starting Ray, the service and its controller ...")
    results = []
    async with _sandbox(address) as sandbox, _service() as api:
        shown = Demo(api=api, sandbox=sandbox, seconds=seconds, time_scale=time_scale, patience_s=PATIENCE_S)
        async with aclosing(shown.run(ACTS[:acts])) as played:
            async for result in played:
                for line in _lines(result):
                    write(line)
                results.append(result)
        write("Removing everything ...")
    return results


def _sandbox(address: str | None) -> AbstractAsyncContextManager[Sandbox]:
    if address is not None:
        return existing_sandbox(address)
    return local_sandbox(list(accelerators().values()), gpus=MAX_GPUS)


@asynccontextmanager
async def _service() -> AsyncIterator[AsyncClient]:
    """Yield an admin's client of a service with its own database and a controller."""
    with tempfile.TemporaryDirectory(prefix="fw-demo-", ignore_cleanup_errors=True) as folder:
        settings = read_settings(database_url=f"sqlite+aiosqlite:///{Path(folder) / 'demo.db'}")
        with open_migrations(settings) as migrations:
            head = migrations.head
            await asyncio.to_thread(migrations.upgrade)
        token = controller_token()
        principal = Principal(actor="demo", scopes=frozenset({TokenScope.ADMIN}), rate_limited=False)
        admin = StaticToken(token=token.token.replace("controller00", "demo00000000"), principal=principal)
        store = Store(settings.database_url.get_secret_value())
        service = create_app(settings=settings, store=store, schema_head=head, static_tokens=[token, admin])
        async with service.router.lifespan_context(service), _worker(service), _controller(service, token):
            transport = InProcessTransport(service)
            async with AsyncClient(URL, token=admin.token, transport=transport) as api:
                yield api


@asynccontextmanager
async def _controller(service: FastAPI, token: StaticToken) -> AsyncIterator[None]:
    running = asyncio.create_task(run_controller(service, token, settings=ControllerSettings(period_s=PERIOD_S)))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def _worker(service: FastAPI) -> AsyncIterator[None]:
    """Do the jobs of the service, in processes of their own."""
    parts = service.state.service
    worker = Worker(
        store=parts.store,
        executor=ProcessExecutor(),
        settings=worker_settings(parts.settings),
        metrics=JobMetrics(parts.metrics.registry),
        now=parts.now,
    )
    parts.jobs.on_accepted = worker.wake
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


def _lines(result: ActResult) -> list[str]:
    planned, applied = (
        ", ".join(f"{count} {gpu}{_at(result, gpu)}" for gpu, count in each.items())
        for each in (result.planned, result.applied)
    )
    return [
        "",
        f"{result.act}: {result.rate_rps:g} requests a second",
        f"  planned  {planned}: ${result.cost_usd_per_h:.2f}/h, {result.planned_power_w:,.0f} W at full load",
        f"  applied  {applied}, after {result.applied_after_s:.0f} s",
        f"  served   {result.requests} requests, {result.lost or 'none'} lost{_why(result)}",
        f"  TTFT     p50 {_s(result.ttft_p50_s)}, p95 {_s(result.ttft_p95_s)}",
        f"  latency  p50 {_s(result.e2e_p50_s)}, p95 {_s(result.e2e_p95_s)}",
        f"  power    {result.power_w:,.0f} W, all GPUs together",
    ]


def _why(result: ActResult) -> str:
    return f" ({result.lost_because})" if result.lost_because is not None else ""


def _at(result: ActResult, gpu: str) -> str:
    return f" at {result.clocks[gpu]:.0%} clock" if gpu in result.clocks else ""


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
