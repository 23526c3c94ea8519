"""A site of the forwarder's tests: the real service, and the three real kinds of outlets."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from api.schemas.faults import DiagnosisReport
from api.schemas.health_events import StoredDelivery
from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.common.target_http import target_client
from deploy.health_events.forwarder import LEASE, Forwarder, ForwarderSettings
from deploy.health_events.metrics import ForwarderMetrics
from deploy.health_events.nvsentinel import nvsentinel_outlet
from deploy.health_events.outlet import NodeSource, Outlet
from deploy.health_events.slurm import Scontrol, SlurmNodes, SlurmOutlet
from deploy.health_events.webhook import WebhookOutlet
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import PolicyMode, QuarantineRules
from tests.deploy.controller.harness import Harness
from tests.deploy.health_events.connector import Connector, platform_connector
from tests.deploy.health_events.fake_scontrol import FakeScontrol
from tests.deploy.health_events.receiver import KEY, Receiver, webhook_receiver

NAMES = " ".join(f"gpu-{number}" for number in range(10))


@dataclass
class Site:
    harness: Harness
    slurm: FakeScontrol
    connector: Connector
    receiver: Receiver
    outlets: Sequence[Outlet]
    sources: Sequence[NodeSource]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  # of the newest forwarder

    async def rules(self, mode: PolicyMode = PolicyMode.APPLY, **changed: object) -> None:
        shipped = await self.harness.api.get_quarantine_rules()
        rules = QuarantineRules.model_validate({"mode": mode, "without_spare": True} | changed)
        await self.harness.api.replace_quarantine_rules(rules, if_match=shipped.etag)

    async def diagnose(self, node: str, *, isolate: bool = True, for_s: float = 60.0) -> str:
        diagnosis = Diagnosis(
            fault=FaultClass.NONCOMM_HANG,
            scope=Scope.NODE,
            node=1,
            onset_s=1.0,
            detected_s=2.0,
            isolate=isolate,
            confidence=0.99,
            reason=f"{node} stopped",
            evidence=("process", "standstill"),
        )
        report = DiagnosisReport(job="llm", diagnosis=diagnosis, nodes={"1": node}, expires_in_s=for_s)
        return (await self.harness.api.report_diagnosis(report)).id

    def forwarder(self, *, act: bool = True, holder: str = "first") -> Forwarder:
        """A new forwarder without state of earlier ones."""
        clock = Clock(now=self.harness.clock.now, steady_s=self.harness.clock.monotonic_s)

        def leadership(name: str) -> Leadership:
            return Leadership(api=self.harness.api, settings=LeaseSettings(name=name, holder=holder), clock=clock)

        self.registry = CollectorRegistry()
        return Forwarder(
            api=self.harness.api,
            outlets=self.outlets,
            sources=self.sources,
            leadership=leadership(LEASE),
            evaluator=leadership(REMEDIATION_LEASE),
            metrics=ForwarderMetrics(self.registry, outlets=[each.name for each in self.outlets]),
            settings=ForwarderSettings(act=act),
            clock=clock,
        )

    async def round(self, forwarder: Forwarder, *, seconds: float = 5.0) -> bool:
        """Renew the leases and reconcile once."""
        self.harness.clock.advance(seconds)
        await forwarder.leadership.renew()
        assert forwarder.evaluator is not None
        await forwarder.evaluator.renew()
        return await forwarder.reconcile()

    async def retire(self, forwarder: Forwarder) -> None:
        """End a forwarder as a crash would, after which the leases expire."""
        await forwarder.leadership.release()
        assert forwarder.evaluator is not None
        await forwarder.evaluator.release()

    async def deliveries(self) -> dict[str, StoredDelivery]:
        found = [each async for each in self.harness.api.iter_health_events()]
        return {f"{each.delivery.outlet.value} {each.delivery.event.node}": each for each in found}


@asynccontextmanager
async def site_of(harness: Harness, folder: Path) -> AsyncIterator[Site]:
    slurm = FakeScontrol(folder)
    slurm.write(NAMES)
    scontrol = Scontrol(command=slurm.command)
    async with platform_connector(folder / "s") as connector:
        with webhook_receiver() as receiver:
            http = target_client(AllowedHosts.parse(LOOPBACK_HOSTS))
            outlets: list[Outlet] = [
                nvsentinel_outlet(connector.socket),
                SlurmOutlet(scontrol=scontrol),
                WebhookOutlet(url=receiver.url, key=KEY, http=http, now=harness.clock.now),
            ]
            site = Site(harness, slurm, connector, receiver, outlets, [SlurmNodes(scontrol=scontrol)])
            await site.rules()
            yield site
            for each in outlets:
                await each.close()
