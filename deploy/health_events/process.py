"""The forwarder of health events as a process: opens the outlets and node sources of its options, and runs the loop."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.target_hosts import AllowedHosts
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.common.target_http import target_client
from deploy.health_events.forwarder import LEASE, Forwarder, ForwarderSettings
from deploy.health_events.kubernetes_nodes import KubernetesNodes
from deploy.health_events.metrics import ForwarderMetrics
from deploy.health_events.nvsentinel import nvsentinel_outlet
from deploy.health_events.outlet import NodeSource, Outlet
from deploy.health_events.slurm import Scontrol, SlurmNodes, SlurmOutlet
from deploy.health_events.webhook import WebhookOutlet


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    url: str
    key: bytes = field(repr=False)
    allowed: AllowedHosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderOptions:
    nvsentinel: str | None = None  # the platform connector's socket, unix:///PATH
    slurm: bool = False
    scontrol: Scontrol = field(default_factory=Scontrol)
    webhook: Webhook | None = None
    nodes_from_slurm: bool = False
    nodes_from_kubernetes: bool = False
    kubeconfig: Path | None = None
    evaluate: bool = False
    forwarder: ForwarderSettings = field(default_factory=ForwarderSettings)


async def run_forwarder(
    options: ForwarderOptions, api: AsyncClient, *, registry: CollectorRegistry, liveness: Liveness
) -> None:
    """Run until cancelled."""
    clock, holder = Clock(), new_holder()
    async with _outlets(options, clock) as outlets, _sources(options) as sources:
        evaluator = LeaseSettings(name=REMEDIATION_LEASE, holder=holder) if options.evaluate else None
        forwarder = Forwarder(
            api=api,
            outlets=outlets,
            sources=sources,
            leadership=Leadership(api=api, settings=LeaseSettings(name=LEASE, holder=holder), clock=clock),
            evaluator=Leadership(api=api, settings=evaluator, clock=clock) if evaluator is not None else None,
            metrics=ForwarderMetrics(registry, outlets=[each.name for each in outlets]),
            settings=options.forwarder,
            liveness=liveness,
            clock=clock,
        )
        await forwarder.run()


@asynccontextmanager
async def _outlets(options: ForwarderOptions, clock: Clock) -> AsyncIterator[list[Outlet]]:
    outlets: list[Outlet] = []
    async with AsyncExitStack() as stack:
        if options.nvsentinel is not None:
            outlets.append(nvsentinel_outlet(options.nvsentinel))
        if options.slurm:
            outlets.append(SlurmOutlet(scontrol=options.scontrol))
        if (hook := options.webhook) is not None:
            outlets.append(WebhookOutlet(url=hook.url, key=hook.key, http=target_client(hook.allowed), now=clock.now))
        for each in outlets:
            stack.push_async_callback(each.close)
        yield outlets


@asynccontextmanager
async def _sources(options: ForwarderOptions) -> AsyncIterator[list[NodeSource]]:
    sources: list[NodeSource] = []
    async with AsyncExitStack() as stack:
        if options.nodes_from_kubernetes:
            access = KubernetesAccess(kubeconfig=options.kubeconfig)
            sources.append(KubernetesNodes(kubernetes=await stack.enter_async_context(kubernetes_server(access))))
        if options.nodes_from_slurm:
            sources.append(SlurmNodes(scontrol=options.scontrol))
        yield sources
