"""`fleetwright remediate`: run the remediation controller, and read its cases."""

import asyncio
import sys
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.console import print_line
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import LogLevel, LogLevelOption, RemoteOptions, TokenFileOption, UrlOption
from api.cli.common.ray_session import joined
from api.cli.common.remote import client_errors, read_token
from api.cli.common.tables import Column, moment, print_fields
from api.cli.remediate.hooks import given_hooks
from api.cli.remediate.kubernetes import kubernetes
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.tracing import tracing
from deploy.common.leader_loop import Liveness
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.remediation.hooks import HOOKS
from deploy.remediation.metrics import RemediationMetrics

CASES = (
    Column("id", of="id"),
    Column("node", of="case.node"),
    Column("state", of="case.state"),
    Column("stage", of="case.stage"),
    moment("since", of="case.since"),
    Column("runs", of=lambda found: ", ".join(each.run for each in found.case.runs)),
    Column("message", of="case.message"),
)

app = new_app()


@app.command("run")
def run(
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Ray cluster to join.")] = "auto",
    act: Annotated[
        bool, typer.Option("--act", help="Drain nodes and end workers; without it, only report what would be done.")
    ] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Also monitor training runs for faults.")
    ] = True,
    inbox: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Unix socket of WatchWorkers; {node}: the node's Ray id.", show_default="none"
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Ray namespace of the runs' status actors.")
    ] = "fleetwright",
    checkpoint_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, max=3600.0, help="Time for ranks that can still checkpoint.")
    ] = 60.0,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600.0, help="Between reconciles.")] = 1.0,
    hook: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COMMAND", help="Command for replace, probe-only or release.", show_default="none"),
    ] = None,
    hook_timeout_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, max=3600.0, help="After which a command is killed.")
    ] = 60.0,
    metrics_port: MetricsPortOption = 9407,
    metrics_host: MetricsHostOption = "127.0.0.1",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Apply the decisions of the quarantine policy to a Ray cluster, case by case.

    The policy (`faults quarantine`) decides which nodes leave service.  Its shipped mode is `observe`.
    """
    commands = given_hooks(hook or [], allowed=HOOKS)
    configure_logs(level=log_level)
    with client_errors(url or DEFAULT_URL):
        client = AsyncClient(url or DEFAULT_URL, token=read_token(token_file))
    registry, liveness = CollectorRegistry(), Liveness()
    with (
        tracing("fleetwright-remediation"),
        joined(address, namespace),
        served_metrics(metrics_host, metrics_port, registry, alive=liveness.is_alive),
    ):
        from deploy.remediation.controller import RemediationSettings  # noqa: PLC0415 - needs Ray
        from deploy.remediation.process import RemediationOptions, run_remediation  # noqa: PLC0415

        options = RemediationOptions(
            namespace=namespace,
            monitor=monitor,
            inbox=inbox,
            hooks=commands,
            hook_timeout_s=hook_timeout_s,
            controller=RemediationSettings(act=act, period_s=period_s, checkpoint_s=checkpoint_s),
        )

        async def work() -> None:
            async with client as api:
                metrics = RemediationMetrics(registry)
                await run_remediation(options, api, out=sys.stdout, metrics=metrics, liveness=liveness)

        asyncio.run(run_until_sigterm(work()))


app.command("kubernetes")(kubernetes)


@app.command("cases")
def cases(service: RemoteOptions) -> None:
    """List all cases, the newest last."""
    service.print_items(CASES, lambda client: client.iter_remediation_cases())


@app.command("case")
def case(
    service: RemoteOptions, case_id: Annotated[str, typer.Argument(metavar="ID", help="As `cases` lists it.")]
) -> None:
    """Show one case with all its actions."""
    with service.connect() as client:
        found = client.get_remediation_case(case_id).document
    if service.printed(found):
        return
    spec = found.case
    print_fields(
        {
            "node": spec.node,
            "state": spec.state.value,
            "stage": spec.stage.value,
            "diagnosis": spec.diagnosis_id,
            "message": spec.message,
        }
    )
    for each in spec.runs:
        resumed = f"resumed at step {each.resumed_step}" if each.settled else "has not resumed yet"
        progress = "over" if each.over else resumed
        print_line(f"run {each.run}: {each.workers} worker(s), checkpoint {each.checkpoint_step}; {progress}")
    for done in spec.actions:
        print_line(f"{done.at:%Y-%m-%d %H:%M:%S}Z  {done.action}  {done.detail}")
