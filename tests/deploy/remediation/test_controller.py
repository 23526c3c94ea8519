"""The remediation controller with the real API and a cluster double: each action runs once, even if controllers die."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from api.client import ApiError
from api.schemas.faults import DiagnosisReport
from api.schemas.remediation import RemediationCase, RemediationStage
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.remediation.cluster_interface import ClusterSnapshot
from deploy.remediation.controller import LEASE, RemediationController, RemediationSettings
from deploy.remediation.metrics import RemediationMetrics
from deploy.remediation.ray_actuator import RayActuator
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import NodeState, OperatorAction, PolicyMode, QuarantineRules
from tests.deploy.controller.harness import Harness
from tests.deploy.remediation.cluster import FakeCluster, head, node, probe_only, run_on

pytestmark = pytest.mark.anyio
NAMES = "abcdefghij"
ACTION_WAIT_S = 50.0
BAD = "b"


@dataclass
class Site:
    """An API, a cluster with one run, and a sequence of controllers."""

    harness: Harness
    cluster: FakeCluster
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  # of the newest controller

    async def rules(self, mode: PolicyMode = PolicyMode.APPLY) -> None:
        shipped = await self.harness.api.get_quarantine_rules()
        await self.harness.api.replace_quarantine_rules(QuarantineRules(mode=mode), if_match=shipped.etag)

    async def suspect(self, *, fault: FaultClass = FaultClass.NONCOMM_HANG, for_s: float = 60.0) -> str:
        diagnosis = Diagnosis(
            fault=fault,
            scope=Scope.RANK,
            node=1,
            onset_s=1.0,
            detected_s=2.0,
            isolate=True,
            confidence=0.99,
            reason="stopped",
            evidence=("process", "standstill"),
        )
        report = DiagnosisReport(job="llm", diagnosis=diagnosis, nodes={"1": BAD}, expires_in_s=for_s)
        return (await self.harness.api.report_diagnosis(report)).id

    def controller(
        self, *, act: bool = True, holder: str = "h", action_wait_s: float = ACTION_WAIT_S
    ) -> RemediationController[ClusterSnapshot]:
        clock = Clock(now=self.harness.clock.now, steady_s=self.harness.clock.monotonic_s)
        lease = LeaseSettings(name=LEASE, holder=holder)
        leadership = Leadership(api=self.harness.api, settings=lease, clock=clock)
        settings = RemediationSettings(act=act, checkpoint_s=60.0, action_wait_s=action_wait_s)
        self.registry = CollectorRegistry()
        return RemediationController(
            api=self.harness.api,
            actuator=RayActuator(self.cluster),
            leadership=leadership,
            metrics=RemediationMetrics(self.registry),
            settings=settings,
            clock=clock,
        )

    async def round(self, controller: RemediationController[ClusterSnapshot]) -> list[str]:
        """One second and one reconcile; returns the calls to the cluster."""
        self.harness.clock.advance(1.0)
        await controller._leadership.renew()
        assert await controller.reconcile()
        return self.cluster.actions()

    async def cases(self) -> list[RemediationCase]:
        return [each async for each in self.harness.api.iter_remediation_cases()]


@pytest.fixture
async def site(harness: Harness) -> Site:
    site = Site(harness, FakeCluster(nodes=[head(), *map(node, NAMES)], runs=[run_on("a", BAD)]))
    await site.rules()
    return site


async def test_a_hang_is_drained_ended_and_replaced_with_every_action_recorded(site: Site) -> None:
    controller = site.controller()
    assert await site.round(controller) == []
    diagnosis_id = await site.suspect()
    assert await site.round(controller) == ["drain id-b"]
    assert controller.ending == {("llm", 1)}
    assert await site.round(controller) == ["end llm/1"]
    site.cluster.run_moves(run_on("a", "c", attempt=2))
    assert await site.round(controller) == []
    site.cluster.run_moves(run_on("a", "c", attempt=2, attempt_step=19, step=29))
    assert await site.round(controller) == ["hook replace b"]
    assert await site.round(controller) == []
    (stored,) = await site.cases()
    assert (stored.id, stored.case.node, stored.case.progress) == (
        diagnosis_id,
        BAD,
        (NodeState.QUARANTINED, RemediationStage.REPLACED),
    )
    assert [each.action for each in stored.case.actions] == ["drain", "end-workers", "hook-replace"]
    assert stored.case.runs[0].resumed_step == 19


@pytest.mark.parametrize("rounds", range(5))
async def test_a_new_controller_after_any_reconcile_reaches_the_same_end(site: Site, rounds: int) -> None:
    await site.suspect()
    calls: list[str] = []
    controller = site.controller(holder="first")
    for number in range(6):
        if number == rounds:
            await controller._leadership.release()
            controller = site.controller(holder="second")
        calls += await site.round(controller)
        if calls[-1:] == ["end llm/1"]:
            site.cluster.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    assert calls == ["drain id-b", "end llm/1", "hook replace b"]
    (stored,) = await site.cases()
    assert stored.case.progress == (NodeState.QUARANTINED, RemediationStage.REPLACED)


async def test_without_act_the_case_lists_the_actions_and_none_runs(site: Site) -> None:
    await site.suspect()
    controller = site.controller(act=False)
    assert [await site.round(controller) for _ in range(3)] == [[], [], []]
    (stored,) = await site.cases()
    assert (stored.case.progress, stored.case.message) == (
        (NodeState.QUARANTINED, RemediationStage.REQUESTED),
        "would: drain ('id-b',)",
    )
    assert controller.ending == frozenset()


async def test_the_shipped_policy_only_observes(site: Site) -> None:
    await site.rules(PolicyMode.OBSERVE)
    await site.suspect()
    assert await site.round(site.controller()) == []
    assert await site.cases() == []


async def test_a_freeze_stops_every_action_until_it_ends(site: Site) -> None:
    await site.suspect()
    controller = site.controller()
    assert await site.round(controller) == ["drain id-b"]
    await site.harness.freeze(frozen=True)
    assert [await site.round(controller) for _ in range(2)] == [[], []]
    await site.harness.freeze(frozen=False)
    assert await site.round(controller) == ["end llm/1"]


async def test_only_the_leader_acts(site: Site) -> None:
    await site.suspect()
    leader, other = site.controller(holder="leader"), site.controller(holder="other")
    assert await site.round(leader) == ["drain id-b"]
    assert await site.round(other) == []
    assert await site.round(leader) == ["end llm/1"]


async def test_a_slow_node_has_time_for_a_checkpoint(site: Site) -> None:
    await site.suspect(fault=FaultClass.NONCOMM_SLOW, for_s=600.0)
    controller = site.controller()
    assert await site.round(controller) == []  # not confirmed yet
    site.harness.clock.advance(30.0)
    assert await site.round(controller) == ["drain id-b"]
    assert await site.round(controller) == []
    assert (await site.cases())[0].case.progress == (NodeState.QUARANTINED, RemediationStage.EVACUATING)
    site.cluster.run_moves(run_on("a", BAD, checkpoint_step=19))
    assert await site.round(controller) == ["end llm/1"]


async def test_a_node_that_returns_for_its_probe_is_probed_and_released(site: Site) -> None:
    await site.suspect()
    controller = site.controller()
    for _ in range(2):
        await site.round(controller)
    site.cluster.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    site.cluster.nodes = [each for each in site.cluster.nodes if each.name != BAD]
    assert await site.round(controller) == ["hook replace b"]
    site.harness.clock.advance(QuarantineRules().cooldown_s)
    assert await site.round(controller) == ["hook probe-only b"]
    site.cluster.nodes.append(probe_only(BAD))
    assert await site.round(controller) == ["probe again-b id-a id-c id-d id-e id-f id-g id-h id-i id-j id-head"]
    assert await site.round(controller) == ["hook release b"]
    (stored,) = await site.cases()
    assert stored.case.state is NodeState.PROBATION
    assert set(controller._probed) == {BAD}
    assert await site.round(controller) == []
    assert controller._probed == {}


async def test_a_failed_probe_keeps_the_node_out_of_service(site: Site) -> None:
    await site.suspect()
    controller = site.controller()
    site.cluster.probe_passes = False
    for _ in range(2):
        await site.round(controller)
    site.cluster.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    site.cluster.nodes = [*(each for each in site.cluster.nodes if each.name != BAD), probe_only(BAD)]
    site.harness.clock.advance(QuarantineRules().cooldown_s)
    for _ in range(3):
        await site.round(controller)
    assert (await site.harness.api.get_quarantine()).out_of_service == (BAD,)
    assert (await site.cases())[0].case.progress == (NodeState.QUARANTINED, RemediationStage.REPLACED)


async def test_a_failed_action_is_recorded_and_retried(site: Site) -> None:
    await site.suspect()
    controller = site.controller()
    site.cluster.refuses = {"drain"}
    assert [await site.round(controller) for _ in range(2)] == [["drain id-b"]] * 2
    (stored,) = await site.cases()
    assert [(each.action, each.detail) for each in stored.case.actions] == [("failed", "drain refused")]
    site.cluster.refuses = set()
    assert await site.round(controller) == ["drain id-b"]


async def test_progress_starts_the_next_reconcile_at_once_and_a_failure_does_not(site: Site) -> None:
    await site.suspect()
    controller = site.controller()
    site.cluster.refuses = {"drain"}
    await site.round(controller)
    for refuses, progress in (({"drain"}, False), (set[str](), True)):
        controller._loop.again.clear()
        site.cluster.refuses = refuses
        assert await site.round(controller) == ["drain id-b"]
        assert controller._loop.again.is_set() is progress


async def both_hooks_at_once(site: Site, controller: RemediationController[ClusterSnapshot]) -> None:
    """Advance the case to the reconcile that runs two hooks."""
    await site.suspect()
    for _ in range(2):
        await site.round(controller)
    site.cluster.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    site.cluster.nodes = [each for each in site.cluster.nodes if each.name != BAD]
    site.harness.clock.advance(QuarantineRules().cooldown_s)
    await controller._leadership.renew()


async def stored_actions(site: Site) -> list[tuple[str, str]]:
    (stored,) = await site.cases()
    return [(each.action, each.detail) for each in stored.case.actions]


async def test_an_action_before_a_freeze_is_recorded_and_not_repeated(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, called = site.controller(), site.cluster.run_hook
    await both_hooks_at_once(site, controller)

    async def freezing(hook: str, *, node: str, case_id: str) -> str:
        await site.harness.freeze(frozen=True)
        return await called(hook, node=node, case_id=case_id)

    monkeypatch.setattr(site.cluster, "run_hook", freezing)
    assert not await controller.reconcile()
    assert site.cluster.actions() == ["hook replace b"]
    assert (await stored_actions(site))[-1] == ("hook-replace", "done")
    await site.harness.freeze(frozen=False)
    assert await site.round(controller) == ["hook probe-only b"]


async def test_an_action_that_could_not_be_stored_is_not_repeated_and_stored_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = site.controller()
    await both_hooks_at_once(site, controller)

    async def unavailable(*_args: object, **_named: object) -> None:
        raise ApiError("the service is unavailable")

    with monkeypatch.context() as during:
        during.setattr(site.harness.api, "update_remediation_case", unavailable)
        assert not await controller.reconcile()
    assert site.cluster.actions() == ["hook replace b"]
    assert await site.round(controller) == ["hook probe-only b"]
    assert (await stored_actions(site))[-2:] == [("hook-replace", "done"), ("hook-probe-only", "done")]


async def test_the_result_of_each_of_several_drains_is_recorded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    drained = site.cluster.drain
    site.cluster.nodes.append(node(BAD, ray_id="id-z"))

    async def only_the_first(ray_id: str, *, reason: str, deadline_s: float) -> None:
        await drained(ray_id, reason=reason, deadline_s=deadline_s)
        if ray_id == "id-z":
            raise ActuationError("id-z: refused")

    monkeypatch.setattr(site.cluster, "drain", only_the_first)
    await site.suspect()
    assert await site.round(site.controller()) == ["drain id-b", "drain id-z"]
    assert await stored_actions(site) == [("drain", "id-b"), ("failed", "id-z: refused")]


async def test_the_head_is_never_drained_and_a_node_without_a_spare_stays(site: Site) -> None:
    site.cluster.nodes = [head(), node("a"), node(BAD), *(replace(node(name), available={}) for name in "cdefghij")]
    site.cluster.runs = [run_on("a", BAD)]
    await site.suspect()
    assert await site.round(site.controller()) == []
    view = await site.harness.api.get_quarantine()
    assert [each.refused_by for each in view.nodes] == ["spare"]
    site.cluster.nodes = [head()]
    assert await site.round(site.controller()) == []


async def test_a_node_cordoned_by_an_operator_has_a_case(site: Site) -> None:
    controller = site.controller()
    await site.round(controller)
    await site.harness.api.request_node_action("d", OperatorAction.CORDON)
    assert await site.round(controller) == ["drain id-d"]
    assert await site.round(controller) == ["hook replace d"]
    (stored,) = await site.cases()
    assert (stored.case.progress, stored.case.diagnosis_id) == ((NodeState.CORDONED, RemediationStage.REPLACED), None)
    await site.harness.api.request_node_action("d", OperatorAction.RELEASE)
    assert await site.round(controller) == ["hook release d"]


async def test_a_long_hook_does_not_delay_other_cases(site: Site) -> None:
    site.cluster.gate = asyncio.Event()
    controller = site.controller(action_wait_s=0.0)
    await site.round(controller)
    await site.harness.api.request_node_action("d", OperatorAction.CORDON)
    calls: list[str] = []
    async with asyncio.timeout(ACTION_WAIT_S):
        while "hook replace d" not in calls:
            calls += await site.round(controller)
        await site.harness.api.request_node_action("e", OperatorAction.CORDON)
        while "hook replace e" not in calls:
            calls += await site.round(controller)
        site.cluster.gate.set()
        while controller._running:
            await asyncio.sleep(0.01)
    assert calls.count("hook replace d") == calls.count("hook replace e") == 1
    by_node = {each.case.node: each.case for each in await site.cases()}
    assert [each.action for each in by_node["d"].actions] == ["drain", "hook-replace"]


async def test_a_case_with_a_defect_does_not_delay_other_cases(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = site.controller()
    await site.round(controller)
    await site.harness.api.request_node_action("d", OperatorAction.CORDON)
    assert await site.round(controller) == ["drain id-d"]

    async def broken(hook: str, *, node: str, case_id: str) -> str:
        raise RuntimeError(f"a defect met with {hook} of {node} in {case_id}")

    monkeypatch.setattr(site.cluster, "run_hook", broken)
    await site.harness.api.request_node_action("e", OperatorAction.CORDON)
    await controller._leadership.renew()
    assert not await controller.reconcile()
    assert site.cluster.actions() == ["drain id-e"]


async def test_a_case_that_cannot_be_opened_does_not_delay_other_cases(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = site.controller()
    await site.round(controller)
    await site.suspect()

    async def refused(_diagnosis: str) -> None:
        raise ApiError("no such diagnosis")

    monkeypatch.setattr(site.harness.api, "get_diagnosis", refused)
    await controller._leadership.renew()
    assert not await controller.reconcile()
    await site.harness.api.request_node_action("d", OperatorAction.CORDON)
    assert not await controller.reconcile()
    assert site.cluster.actions() == ["drain id-d"]


async def test_a_release_with_a_failed_hook_is_retried(site: Site) -> None:
    controller = site.controller()
    await site.round(controller)
    await site.harness.api.request_node_action("d", OperatorAction.CORDON)
    for _ in range(2):
        await site.round(controller)
    await site.harness.api.request_node_action("d", OperatorAction.RELEASE)
    site.cluster.refuses = {"hook"}
    assert [await site.round(controller) for _ in range(2)] == [["hook release d"]] * 2
    assert (await site.cases())[0].case.progress == (NodeState.CORDONED, RemediationStage.REPLACED)
    site.cluster.refuses = set()
    assert await site.round(controller) == ["hook release d"]
    assert (await site.cases())[0].case.state is NodeState.PROBATION
