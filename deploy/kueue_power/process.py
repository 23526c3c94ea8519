"""The power check as a process."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.kueue_power.cluster import KueueCluster
from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.controller import LEASE, PowerCheck, PowerCheckSettings
from deploy.kueue_power.metrics import PowerCheckMetrics


async def run_power_check(
    file: PowerCheckFile,
    settings: PowerCheckSettings,
    api: AsyncClient,
    *,
    kubeconfig: Path | None,
    registry: CollectorRegistry,
    liveness: Liveness,
    lease_s: float = 15.0,
) -> None:
    """Run until cancelled."""
    clock = Clock()
    lease = LeaseSettings(name=LEASE, holder=new_holder(), lease_s=lease_s, renew_s=lease_s / 3.0)
    async with kubernetes_server(KubernetesAccess(kubeconfig=kubeconfig)) as kubernetes:
        check = PowerCheck(
            api=api,
            cluster=KueueCluster(kubernetes=kubernetes),
            file=file,
            leadership=Leadership(api=api, settings=lease, clock=clock),
            metrics=PowerCheckMetrics(registry, rows=file.rows),
            settings=settings,
            liveness=liveness,
            clock=clock,
        )
        await check.run()
