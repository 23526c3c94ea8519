"""`fleetwright remediate kubernetes`: run the remediation controller of Kubernetes nodes."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.errors import input_errors
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import LogLevel, LogLevelOption, TokenFileOption, UrlOption
from api.cli.common.remote import client_errors, read_token
from api.cli.remediate.hooks import given_hooks
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.tracing import tracing
from deploy.common.kubernetes_client import KubernetesAccess
from deploy.common.leader_election import LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.common.topology_discovery import UnusableSourceError
from deploy.remediation.controller import LEASE, RemediationSettings
from deploy.remediation.hooks import NODE_HOOKS
from deploy.remediation.kubernetes_nodes.actuator import Evicted
from deploy.remediation.kubernetes_nodes.process import KubernetesRemediationOptions, run_kubernetes_remediation
from deploy.remediation.metrics import NODE_ACTIONS, RemediationMetrics


def kubernetes(
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Cluster of the nodes.", show_default="as kubectl")
    ] = None,
    nodes: Annotated[
        str, typer.Option(metavar="LABELS", help="Label selector of the nodes.", show_default="all with GPUs")
    ] = "",
    act: Annotated[
        bool, typer.Option("--act", help="Cordon nodes and evict pods; without it, only report what would be done.")
    ] = False,
    evict: Annotated[
        Evicted, typer.Option(help="Pods that leave a node out of service: those with GPUs, or none.")
    ] = Evicted.GPU,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600.0, help="Between reconciles.")] = 2.0,
    lease_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, max=3600.0, help="Duration of the lease; renewed at a third.")
    ] = 15.0,
    hook: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COMMAND", help="Command for replace, probe or release.", show_default="none"),
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
    """Apply the decisions of the quarantine policy to Kubernetes nodes.

    The policy (`faults quarantine`) decides which nodes leave service.  Its shipped mode is `observe`.
    """
    options = KubernetesRemediationOptions(
        access=KubernetesAccess(kubeconfig=kubeconfig),
        selector=nodes,
        evicted=evict,
        hooks=given_hooks(hook or [], allowed=NODE_HOOKS),
        hook_timeout_s=hook_timeout_s,
        controller=RemediationSettings(act=act, period_s=period_s),
        lease=LeaseSettings(name=LEASE, holder=new_holder(), lease_s=lease_s, renew_s=lease_s / 3.0),
    )
    configure_logs(level=log_level)
    with client_errors(url or DEFAULT_URL):
        client = AsyncClient(url or DEFAULT_URL, token=read_token(token_file))
    registry, liveness = CollectorRegistry(), Liveness()

    async def work() -> None:
        async with client as api:
            metrics = RemediationMetrics(registry, actions=NODE_ACTIONS)
            await run_kubernetes_remediation(options, api, metrics=metrics, liveness=liveness)

    with (
        tracing("fleetwright-remediation"),
        served_metrics(metrics_host, metrics_port, registry, alive=liveness.is_alive),
        input_errors(UnusableSourceError),
    ):
        asyncio.run(run_until_sigterm(work()))
