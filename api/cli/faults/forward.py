"""`fleetwright faults forward`: send health events to NVSentinel, Slurm and a webhook, and read their conditions."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import httpx
import typer
from prometheus_client import CollectorRegistry

from api.cli.common.errors import InputError, input_errors
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import LogLevel, LogLevelOption, RemoteOptions, TokenFileOption, UrlOption
from api.cli.common.remote import client_errors, read_token
from api.cli.common.tables import Column, moment
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.schemas.target_hosts import CLUSTER_HOSTS, TARGET_HOSTS_VARIABLE, AllowedHosts
from api.tracing import tracing
from deploy.common.leader_loop import Liveness
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.common.topology_discovery import UnusableSourceError
from deploy.health_events.forwarder import ForwarderSettings
from deploy.health_events.process import ForwarderOptions, Webhook, run_forwarder
from deploy.health_events.slurm import Scontrol
from deploy.health_events.webhook import SecretError, key_of
from fleet.errors import DocumentError

EVENTS = (
    Column("outlet", of="delivery.outlet"),
    Column("component", of=lambda found: found.delivery.event.node or f"switch {found.delivery.event.switch}"),
    Column("event", of="delivery.event.state"),
    moment("at", of="delivery.event.at"),
    Column("state", of="delivery.state"),
    Column("message", of="delivery.message"),
)


class NodesFrom(StrEnum):
    """Where the states of the nodes come from."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


app = new_app()
events_app = new_app()


@app.command("forward")
def forward(
    nvsentinel: Annotated[
        str | None,
        typer.Option(metavar="SOCKET", help="Socket of the platform connector, unix:///PATH.", show_default="none"),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Drain and return Slurm nodes.")] = False,
    scontrol: Annotated[
        str, typer.Option(metavar="COMMAND", help="Command that runs scontrol; no shell interprets it.")
    ] = "scontrol",
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Receives each event by POST, signed.", show_default="none")
    ] = None,
    webhook_secret_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Key of the signature, of 16 bytes or more.", show_default="none"),
    ] = None,
    target_host: Annotated[
        list[str] | None,
        typer.Option(
            "--target-host",
            metavar="HOST",
            envvar=TARGET_HOSTS_VARIABLE,
            help="Host that the webhook may be on: a name, a suffix, an address or a network; repeatable.",
            show_default=" ".join(CLUSTER_HOSTS),
        ),
    ] = None,
    nodes_from: Annotated[
        list[NodesFrom] | None,
        typer.Option("--nodes-from", help="Source of node states and conditions; repeatable.", show_default="none"),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of --nodes-from kubernetes.", show_default="as kubectl")
    ] = None,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate", help="Run the quarantine policy on these nodes; else another controller does."),
    ] = False,
    act: Annotated[
        bool, typer.Option("--act", help="Send the events; without it, only store and show what would be sent.")
    ] = False,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600.0, help="Between reconciles.")] = 5.0,
    metrics_port: MetricsPortOption = 9409,
    metrics_host: MetricsHostOption = "127.0.0.1",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Send health events to NVSentinel, Slurm and a webhook.

    Events are the decisions of the quarantine policy, and diagnoses.  A node that another tool or person has taken out
    of service is not touched.
    """
    sources = set(nodes_from or [])
    if act and nvsentinel is not None and NodesFrom.KUBERNETES not in sources:
        raise InputError("--nvsentinel with --act needs --nodes-from kubernetes, to leave nodes of other owners alone")
    if evaluate and not sources:
        raise InputError("--evaluate needs --nodes-from")
    options = ForwarderOptions(
        nvsentinel=nvsentinel,
        slurm=slurm,
        scontrol=Scontrol(command=scontrol),
        webhook=_webhook(webhook, webhook_secret_file, target_host),
        nodes_from_slurm=NodesFrom.SLURM in sources,
        nodes_from_kubernetes=NodesFrom.KUBERNETES in sources,
        kubeconfig=kubeconfig,
        evaluate=evaluate,
        forwarder=ForwarderSettings(act=act, period_s=period_s),
    )
    if not (nvsentinel or slurm or webhook or sources):
        raise InputError("give --nvsentinel, --slurm, --webhook or --nodes-from")
    configure_logs(level=log_level)
    with client_errors(url or DEFAULT_URL):
        client = AsyncClient(url or DEFAULT_URL, token=read_token(token_file))
    registry, liveness = CollectorRegistry(), Liveness()

    async def work() -> None:
        async with client as api:
            await run_forwarder(options, api, registry=registry, liveness=liveness)

    with (
        tracing("fleetwright-health-events"),
        served_metrics(metrics_host, metrics_port, registry, alive=liveness.is_alive),
        input_errors(UnusableSourceError),
    ):
        asyncio.run(run_until_sigterm(work()))


@events_app.command("health-events")
def health_events(service: RemoteOptions) -> None:
    """List the health events, and their delivery."""
    service.print_items(EVENTS, lambda client: client.iter_health_events())


def _webhook(url: str | None, secret_file: Path | None, target_host: list[str] | None) -> Webhook | None:
    if url is None:
        return None
    with input_errors(httpx.InvalidURL, prefix="--webhook: "):
        parsed = httpx.URL(url)
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InputError("--webhook must be http://HOST/PATH or https://HOST/PATH")
    if secret_file is None:
        raise InputError("--webhook needs --webhook-secret-file: the receiver checks the signature")
    with input_errors(OSError, UnicodeError, SecretError, prefix="--webhook-secret-file: "):
        key = key_of(secret_file.read_text(encoding="utf-8"))
    with input_errors(DocumentError):
        return Webhook(url=url, key=key, allowed=AllowedHosts.parse(target_host or CLUSTER_HOSTS))
