"""`fleetwright controller`: run the controller as a process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.console import note
from api.cli.common.errors import EXIT_NEGATIVE, input_errors
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import LogLevel, LogLevelOption, TokenFileOption, UrlOption
from api.cli.common.remote import client_errors, read_token
from api.cli.controller.dry_run import (
    KubeconfigOption,
    KubernetesOption,
    TargetHostOption,
    allowed_hosts,
    kubernetes_access,
    plan,
    usable_actuators,
)
from api.cli.controller.ray import COMMANDS as ON_RAY
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.schemas.target_hosts import AllowedHosts
from api.tracing import tracing
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.common.logs import configure_logs
from deploy.common.shutdown import run_until_sigterm
from deploy.common.target_http import target_client
from deploy.common.topology_discovery import UnusableSourceError
from deploy.controller.controller import Controller
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.prometheus_health import prometheus_health
from deploy.controller.reconcile import ControllerSettings
from deploy.custom_resources.reconciler import CustomResources
from deploy.demand.reader import DemandFolders
from deploy.node_discovery.discovery import DiscoverySettings
from deploy.node_discovery.process import node_discovery
from deploy.planning_loop.process import CREDENTIALS_VARIABLE, LOGS_VARIABLE, planning_loops

app = new_app()


@app.command()
def run(
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=3600.0, help="Between reconciles.")] = 5.0,
    lease_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, max=3600.0, help="Duration of the lease; renewed at a third.")
    ] = 15.0,
    observe_only: Annotated[
        bool, typer.Option("--observe-only", help="Observe and report only, whatever the targets' modes.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Reconcile once, then exit: 0 on success, else 1.")] = False,
    metrics_port: MetricsPortOption = 9401,
    metrics_host: MetricsHostOption = "127.0.0.1",
    kubernetes: KubernetesOption = False,
    kubeconfig: KubeconfigOption = None,
    target_host: TargetHostOption = None,
    demand_credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar=CREDENTIALS_VARIABLE,
            help="Folder of credentials that demand sources name.",
            show_default="none",
        ),
    ] = None,
    request_logs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar=LOGS_VARIABLE,
            help="Folder of request logs that demand sources name.",
            show_default="none",
        ),
    ] = None,
    publish_stock: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="--kubernetes: keep this stock from the nodes and pods of the cluster.",
            show_default="none",
        ),
    ] = None,
    publish_topology: Annotated[
        bool, typer.Option("--publish-topology", help="--publish-stock: keep the topology by node labels too.")
    ] = False,
    stock_stale_after_s: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=30.0, max=86_400.0, help="A plan on an older stock is not applied."),
    ] = 300.0,
    stock_cluster_queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Kueue ClusterQueue whose quota bounds the stock; repeatable.", show_default="none"
        ),
    ] = None,
    stock_devices: Annotated[
        bool, typer.Option("--stock-devices", help="Count GPUs of ResourceSlices and ResourceClaims (DRA).")
    ] = False,
    custom_resources: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE",
            help="Also reconcile FleetTarget and PlanRequest objects of this namespace; '*': of all namespaces.",
            show_default="none",
        ),
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Reconcile targets with their plans, and run planning loops; write to targets in mode `apply`."""
    configure_logs(level=log_level)
    settings = ControllerSettings(period_s=period_s, observe_only=observe_only)
    access = kubernetes_access(kubernetes=kubernetes, kubeconfig=kubeconfig)
    lease = LeaseSettings(holder=new_holder(), lease_s=lease_s, renew_s=lease_s / 3.0)
    discovery = None
    if publish_stock is not None:
        if access is None:
            raise typer.BadParameter("--publish-stock: needs --kubernetes or --kubeconfig")
        discovery = DiscoverySettings(
            stock=publish_stock,
            stale_after_s=stock_stale_after_s,
            topology=publish_topology,
            devices=stock_devices,
            cluster_queues=stock_cluster_queue or (),
        )
    elif publish_topology:
        raise typer.BadParameter("--publish-topology: needs --publish-stock")
    work = _run(
        url or DEFAULT_URL,
        token_file,
        settings,
        lease,
        (metrics_host, metrics_port),
        access=access,
        allowed=allowed_hosts(target_host),
        folders=DemandFolders(credentials=demand_credentials, logs=request_logs),
        discovery=discovery,
        custom_resources=custom_resources,
        kubeconfig=kubeconfig,
        once=once,
    )
    with tracing("fleetwright-controller"):
        done = asyncio.run(run_until_sigterm(work))
    if done is False:
        raise typer.Exit(EXIT_NEGATIVE)


async def _run(
    url: str,
    token_file: Path | None,
    settings: ControllerSettings,
    lease: LeaseSettings,
    metrics_at: tuple[str, int],
    *,
    access: KubernetesAccess | None,
    allowed: AllowedHosts,
    folders: DemandFolders,
    discovery: DiscoverySettings | None,
    custom_resources: str | None,
    kubeconfig: Path | None,
    once: bool,
) -> bool:
    registry = CollectorRegistry()
    with client_errors(url):
        api_client = AsyncClient(url, token=read_token(token_file))
    clock, liveness = Clock(), Liveness()
    async with (
        api_client as api,
        target_client(allowed) as http,
        usable_actuators(http, access) as actuators,
        prometheus_health(allowed=allowed, now=clock.now) as health,
        _custom_resources(api, custom_resources, kubeconfig, settings) as resources,
    ):
        leadership = Leadership(api=api, settings=lease, clock=clock)
        async with (
            planning_loops(
                api=api,
                leadership=leadership,
                registry=registry,
                allowed=allowed,
                clock=clock,
                folders=folders,
                observe_only=settings.observe_only,
            ) as planning,
            node_discovery(discovery, access, api=api, leadership=leadership, registry=registry, clock=clock) as nodes,
        ):
            controller = Controller(
                api=api,
                leadership=leadership,
                actuators=actuators,
                http=http,
                health=health,
                metrics=ControllerMetrics(registry),
                settings=settings,
                liveness=liveness,
                beside=[planning.advance] if nodes is None else [planning.advance, nodes.advance],
            )
            if once:
                return await _once(controller, leadership)
            with served_metrics(*metrics_at, registry, alive=liveness.is_alive):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(controller.run())
                    if resources is not None:
                        tasks.create_task(resources(leadership).run())
        return True


@asynccontextmanager
async def _custom_resources(
    api: AsyncClient, namespace: str | None, kubeconfig: Path | None, settings: ControllerSettings
) -> AsyncIterator[Callable[[Leadership], CustomResources] | None]:
    if namespace is None:
        yield None
        return
    with input_errors(UnusableSourceError):
        async with kubernetes_server(KubernetesAccess(kubeconfig=kubeconfig)) as kubernetes:
            yield lambda leadership: CustomResources(
                api=api,
                kubernetes=kubernetes,
                leadership=leadership,
                namespace=None if namespace == "*" else namespace,
                period_s=settings.period_s,
                observe_only=settings.observe_only,
            )


async def _once(controller: Controller, leadership: Leadership) -> bool:
    if not await leadership.wait():
        note("another controller leads; nothing was done")
        return False
    try:
        return await controller.reconcile()
    finally:
        await leadership.release()


app.command("plan")(plan)
for _name, _command in ON_RAY.items():
    app.command(_name)(_command)
