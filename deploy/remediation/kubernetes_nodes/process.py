"""The remediation controller of Kubernetes nodes, as a process."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.client import AsyncClient
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.remediation.controller import LEASE, RemediationController, RemediationSettings
from deploy.remediation.hooks import Hooks
from deploy.remediation.kubernetes_nodes.actuator import Evicted, KubernetesActuator
from deploy.remediation.kubernetes_nodes.snapshot import NodesSnapshot
from deploy.remediation.metrics import RemediationMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRemediationOptions:
    access: KubernetesAccess = field(default_factory=KubernetesAccess)
    selector: str = ""
    evicted: Evicted = Evicted.GPU
    hooks: Mapping[str, str] = field(default_factory=dict)
    hook_timeout_s: float = 60.0
    controller: RemediationSettings = field(default_factory=RemediationSettings)
    lease: LeaseSettings = field(default_factory=lambda: LeaseSettings(name=LEASE, holder=new_holder()))


async def run_kubernetes_remediation(
    options: KubernetesRemediationOptions, api: AsyncClient, *, metrics: RemediationMetrics, liveness: Liveness
) -> None:
    """Run until cancelled.  Raise UnusableSourceError where there is no cluster."""
    settings = replace(options.controller, case_timeout_s=options.controller.case_timeout_s + options.hook_timeout_s)
    async with kubernetes_server(options.access) as kubernetes:
        actuator = KubernetesActuator(
            kubernetes=kubernetes,
            hooks=Hooks(commands=options.hooks, timeout_s=options.hook_timeout_s),
            selector=options.selector,
            evicted=options.evicted,
        )
        controller: RemediationController[NodesSnapshot] = RemediationController(
            api=api,
            actuator=actuator,
            leadership=Leadership(api=api, settings=options.lease, clock=Clock()),
            metrics=metrics,
            settings=settings,
            liveness=liveness,
        )
        await controller.run()
