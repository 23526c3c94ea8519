"""The metrics of a remediation controller, and its liveness while the loop runs."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from prometheus_client import CollectorRegistry

from api.client import ApiError
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.common.leader_loop import ALLOWANCE, Liveness
from deploy.remediation.cluster_interface import ClusterSnapshot
from deploy.remediation.controller import LEASE, RemediationController, RemediationSettings
from deploy.remediation.metrics import RemediationMetrics
from deploy.remediation.ray_actuator import RayActuator
from faults.quarantine import OperatorAction, PolicyMode, QuarantineRules
from tests.deploy.controller.harness import Harness
from tests.deploy.remediation.cluster import FakeCluster, head, node

pytestmark = pytest.mark.anyio
ACTION_WAIT_S = 50.0
TURNS = 3


@dataclass
class Observed:
    """A controller whose metrics are read; its loop waits between reconciles, and its lease between renewals."""

    harness: Harness
    holder: str = "h"
    cluster: FakeCluster = field(default_factory=lambda: FakeCluster(nodes=[head(), *map(node, "abcdefghij")], runs=[]))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    alive: list[bool] = field(default_factory=list)  # liveness at each wait
    renewed: asyncio.Event = field(default_factory=asyncio.Event)
    stuck: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        now, steady_s = self.harness.clock.now, self.harness.clock.monotonic_s
        self.liveness = Liveness(steady_s=steady_s)
        self.settings = RemediationSettings(act=True, action_wait_s=ACTION_WAIT_S)
        self.leadership = Leadership(
            api=self.harness.api,
            settings=LeaseSettings(name=LEASE, holder=self.holder),
            clock=Clock(now=now, steady_s=steady_s, sleep=self._renewed),
        )
        self.controller = RemediationController(
            api=self.harness.api,
            actuator=RayActuator(self.cluster),
            leadership=self.leadership,
            metrics=RemediationMetrics(self.registry),
            settings=self.settings,
            liveness=self.liveness,
            clock=Clock(now=now, steady_s=steady_s, sleep=self._turned),
        )

    async def round(self) -> bool:
        """One second and one reconcile."""
        self.harness.clock.advance(1.0)
        await self.leadership.renew()
        return await self.controller.reconcile()

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"fleetwright_remediation_{name}")

    def counted(self, name: str) -> Mapping[tuple[str, ...], float]:
        """The values of a counter by its labels, without zeros."""
        return dict(self._counted(f"fleetwright_remediation_{name}_total"))

    def _counted(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        for sample in (sample for family in self.registry.collect() for sample in family.samples):
            if sample.name == name and sample.value:
                yield tuple(sample.labels.values()), sample.value

    async def _renewed(self, _seconds: float) -> None:
        self.renewed.set()
        await asyncio.Event().wait()

    async def _turned(self, _seconds: float) -> None:
        self.alive.append(self.liveness.is_alive())
        self.harness.clock.advance(1.0)
        await self.renewed.wait()
        if len(self.alive) > TURNS:
            self.stuck.set()
            await asyncio.Event().wait()


@pytest.fixture
async def observed(harness: Harness) -> Observed:
    shipped = await harness.api.get_quarantine_rules()
    await harness.api.replace_quarantine_rules(QuarantineRules(mode=PolicyMode.APPLY), if_match=shipped.etag)
    return Observed(harness)


async def test_actions_are_counted_by_name_and_outcome(observed: Observed) -> None:
    await observed.round()
    await observed.harness.api.request_node_action("d", OperatorAction.CORDON)
    observed.cluster.refuses = {"drain"}
    for _ in range(2):
        await observed.round()
    assert observed.counted("actions") == {("drain", "failed"): 2}
    observed.cluster.refuses = set()
    for _ in range(3):
        await observed.round()
    await observed.harness.api.request_node_action("d", OperatorAction.RELEASE)
    await observed.round()
    assert observed.counted("actions") == {
        ("drain", "failed"): 2,
        ("drain", "ok"): 1,
        ("hook-replace", "ok"): 1,
        ("hook-release", "ok"): 1,
    }


async def test_a_missing_hook_and_a_freeze_count_no_action(observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_hook: str, *, node: str, case_id: str) -> str:  # noqa: ARG001 - of the protocol
        return ""

    monkeypatch.setattr(observed.cluster, "run_hook", none)
    await observed.round()
    await observed.harness.api.request_node_action("d", OperatorAction.CORDON)
    await observed.harness.freeze(frozen=True)
    await observed.round()
    assert observed.counted("actions") == {}
    await observed.harness.freeze(frozen=False)
    for _ in range(3):
        await observed.round()
    assert observed.counted("actions") == {("drain", "ok"): 1}


async def test_only_the_leader_counts_reconciles_and_the_last_success_is_kept(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (observed.value("is_leader"), observed.value("last_reconcile_timestamp_seconds")) == (0.0, 0.0)
    assert await observed.round()
    good_at_s = observed.harness.clock.now().timestamp()
    assert (observed.value("is_leader"), observed.value("last_reconcile_timestamp_seconds")) == (1.0, good_at_s)

    async def unavailable() -> ClusterSnapshot:
        raise ActuationError("Ray does not respond")

    monkeypatch.setattr(observed.cluster, "observe", unavailable)
    assert not await observed.round()
    assert observed.counted("reconciles") == {("ok",): 1, ("failed",): 1}
    assert observed.value("reconcile_duration_seconds_count") == 2
    assert observed.value("last_reconcile_timestamp_seconds") == good_at_s
    other = Observed(observed.harness, holder="other")
    assert await other.round()
    assert (other.value("is_leader"), other.counted("reconciles")) == (0.0, {})


async def test_each_scrape_reads_the_number_of_monitored_runs() -> None:
    registry, runs = CollectorRegistry(), ["llm"]
    RemediationMetrics(registry).set_monitored_source(lambda: len(runs))
    assert registry.get_sample_value("fleetwright_remediation_runs_monitored") == 1.0
    runs.clear()
    assert registry.get_sample_value("fleetwright_remediation_runs_monitored") == 0.0


async def test_is_leader_is_0_once_the_lease_has_expired(observed: Observed) -> None:
    await observed.round()
    observed.harness.clock.advance(60.0)  # the lease was not renewed
    assert observed.value("is_leader") == 0.0


@pytest.mark.parametrize(
    ("state", "reconciles"),
    [
        ("leads", {("ok",): TURNS}),
        ("follows", {}),
        ("defect", {("failed",): TURNS}),
        ("no service", {("failed",): TURNS}),
    ],
)
async def test_the_controller_is_alive_until_its_loop_is_stuck(
    observed: Observed, monkeypatch: pytest.MonkeyPatch, state: str, reconciles: Mapping[tuple[str, ...], float]
) -> None:
    await _prepare(state, observed, monkeypatch)
    assert not observed.liveness.is_alive()
    async with asyncio.timeout(ACTION_WAIT_S):
        running = asyncio.create_task(observed.controller.run())
        await observed.stuck.wait()
    assert observed.alive == [True] * (TURNS + 1)
    assert observed.counted("reconciles") == reconciles
    longest_s = observed.settings.period_s + observed.settings.reconcile_timeout_s
    observed.harness.clock.advance(longest_s)
    assert observed.liveness.is_alive()  # the maximum duration of a cycle
    observed.harness.clock.advance(ALLOWANCE * longest_s)
    assert not observed.liveness.is_alive()
    running.cancel()
    await asyncio.wait([running])


async def _prepare(state: str, observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> ClusterSnapshot:
        raise RuntimeError("a defect")

    async def no_answer(_name: str) -> None:
        raise ApiError("no response")

    if state == "follows":
        assert await Observed(observed.harness, holder="other").round()
    elif state == "defect":
        monkeypatch.setattr(observed.cluster, "observe", broken)
    elif state == "no service":
        monkeypatch.setattr(observed.harness.api, "get_lease", no_answer)
