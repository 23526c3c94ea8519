"""The healer between the real service and a cluster that does as told: one case, each act once, whoever dies."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from api.client import ApiError
from api.schemas.faults import VerdictReport
from api.schemas.remediation import CasePhase, HealingCase
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.remediation.controller import LEASE, Healer, HealerSettings
from deploy.remediation.metrics import HealerMetrics
from faults.diagnosis import FaultClass, Scope, Verdict
from faults.quarantine import IsolationRules, Mode, Wish
from tests.deploy.controller_harness import House
from tests.deploy.remediation.world import FakeWorld, head, node, on_probation, run_on

pytestmark = pytest.mark.anyio
NAMES = "abcdefghij"
PATIENCE_S = 50.0
BAD = "b"


@dataclass
class Ward:
    """A service, a cluster with one run, and healers that come and go."""

    house: House
    world: FakeWorld
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)  # of the healer that came last

    async def rules(self, mode: Mode = Mode.APPLY) -> None:
        shipped = await self.house.api.get_isolation_rules()
        await self.house.api.replace_isolation_rules(IsolationRules(mode=mode), if_match=shipped.etag)

    async def accuse(self, *, fault: FaultClass = FaultClass.NONCOMM_HANG, for_s: float = 60.0) -> str:
        verdict = Verdict(
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
        report = VerdictReport(job="llm", verdict=verdict, nodes={"1": BAD}, believed_for_s=for_s)
        return (await self.house.api.report_fault_verdict(report)).id

    def healer(self, *, act: bool = True, holder: str = "h", patience_s: float = PATIENCE_S) -> Healer:
        clock = Clock(now=self.house.clock.now, steady_s=self.house.clock.monotonic_s)
        lease = LeaseSettings(name=LEASE, holder=holder)
        leadership = Leadership(api=self.house.api, settings=lease, clock=clock)
        settings = HealerSettings(act=act, checkpoint_s=60.0, patience_s=patience_s)
        self.registry = CollectorRegistry()
        return Healer(
            api=self.house.api,
            world=self.world,
            leadership=leadership,
            metrics=HealerMetrics(self.registry),
            settings=settings,
            clock=clock,
        )

    async def round(self, healer: Healer) -> list[str]:
        """A second later; what the world was asked for."""
        self.house.clock.advance(1.0)
        await healer._leadership.renew()
        assert await healer.run_round()
        return self.world.acts()

    async def cases(self) -> list[HealingCase]:
        return [each async for each in self.house.api.iter_healing_cases()]


@pytest.fixture
async def ward(house: House) -> Ward:
    ward = Ward(house, FakeWorld(nodes=[head(), *map(node, NAMES)], runs=[run_on("a", BAD)]))
    await ward.rules()
    return ward


async def test_a_hang_is_drained_ended_and_replaced_with_every_act_on_record(ward: Ward) -> None:
    healer = ward.healer()
    assert await ward.round(healer) == []
    accusation = await ward.accuse()
    assert await ward.round(healer) == ["drain id-b"]
    assert healer.doomed == {("llm", 1)}
    assert await ward.round(healer) == ["end llm/1"]
    ward.world.run_moves(run_on("a", "c", attempt=2))
    assert await ward.round(healer) == []
    ward.world.run_moves(run_on("a", "c", attempt=2, attempt_step=19, step=29))
    assert await ward.round(healer) == ["hook replace b"]
    assert await ward.round(healer) == []
    (stored,) = await ward.cases()
    assert (stored.id, stored.case.node, stored.case.phase) == (accusation, BAD, CasePhase.REPLACED)
    assert [act.act for act in stored.case.acts] == ["drain", "end-workers", "hook-replace"]
    assert stored.case.runs[0].resumed_step == 19


@pytest.mark.parametrize("rounds", range(5))
async def test_whoever_is_ended_after_any_round_the_next_one_brings_it_to_the_same_end(ward: Ward, rounds: int) -> None:
    await ward.accuse()
    asked: list[str] = []
    healer = ward.healer(holder="first")
    for number in range(6):
        if number == rounds:
            await healer._leadership.give_back()
            healer = ward.healer(holder="second")
        asked += await ward.round(healer)
        if asked[-1:] == ["end llm/1"]:
            ward.world.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    assert asked == ["drain id-b", "end llm/1", "hook replace b"]
    (stored,) = await ward.cases()
    assert stored.case.phase is CasePhase.REPLACED


async def test_without_act_it_says_what_it_would_do_and_touches_nothing(ward: Ward) -> None:
    await ward.accuse()
    healer = ward.healer(act=False)
    assert [await ward.round(healer) for _ in range(3)] == [[], [], []]
    (stored,) = await ward.cases()
    assert (stored.case.phase, stored.case.message) == (CasePhase.WANTED, "would: drain ('id-b',)")
    assert healer.doomed == frozenset()


async def test_as_shipped_the_policy_itself_only_observes(ward: Ward) -> None:
    await ward.rules(Mode.OBSERVE)
    await ward.accuse()
    assert await ward.round(ward.healer()) == []
    assert await ward.cases() == []


async def test_a_freeze_stops_every_act_until_it_is_lifted(ward: Ward) -> None:
    await ward.accuse()
    healer = ward.healer()
    assert await ward.round(healer) == ["drain id-b"]
    await ward.house.freeze(frozen=True)
    assert [await ward.round(healer) for _ in range(2)] == [[], []]
    await ward.house.freeze(frozen=False)
    assert await ward.round(healer) == ["end llm/1"]


async def test_only_the_leader_acts(ward: Ward) -> None:
    await ward.accuse()
    leader, other = ward.healer(holder="leader"), ward.healer(holder="other")
    assert await ward.round(leader) == ["drain id-b"]
    assert await ward.round(other) == []
    assert await ward.round(leader) == ["end llm/1"]


async def test_a_slow_node_gets_its_time_for_a_checkpoint(ward: Ward) -> None:
    await ward.accuse(fault=FaultClass.NONCOMM_SLOW, for_s=600.0)
    healer = ward.healer()
    assert await ward.round(healer) == []  # not confirmed yet
    ward.house.clock.advance(30.0)
    assert await ward.round(healer) == ["drain id-b"]
    assert await ward.round(healer) == []
    assert (await ward.cases())[0].case.phase is CasePhase.EVACUATING
    ward.world.run_moves(run_on("a", BAD, checkpoint_step=19))
    assert await ward.round(healer) == ["end llm/1"]


async def test_it_is_probed_on_probation_and_released(ward: Ward) -> None:
    await ward.accuse()
    healer = ward.healer()
    for _ in range(2):
        await ward.round(healer)
    ward.world.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    ward.world.nodes = [each for each in ward.world.nodes if each.name != BAD]
    assert await ward.round(healer) == ["hook replace b"]
    ward.house.clock.advance(IsolationRules().probation_s)
    assert await ward.round(healer) == ["hook probation b"]
    ward.world.nodes.append(on_probation(BAD))
    assert await ward.round(healer) == ["probe again-b id-a id-c id-d id-e id-f id-g id-h id-i id-j id-head"]
    assert await ward.round(healer) == ["hook release b"]
    (stored,) = await ward.cases()
    assert stored.case.phase is CasePhase.RELEASED
    assert set(healer._probed) == {BAD}
    assert await ward.round(healer) == []
    assert healer._probed == {}


async def test_a_probe_that_fails_leaves_it_out(ward: Ward) -> None:
    await ward.accuse()
    healer = ward.healer()
    ward.world.probe_passes = False
    for _ in range(2):
        await ward.round(healer)
    ward.world.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    ward.world.nodes = [*(each for each in ward.world.nodes if each.name != BAD), on_probation(BAD)]
    ward.house.clock.advance(IsolationRules().probation_s)
    for _ in range(3):
        await ward.round(healer)
    assert (await ward.house.api.get_isolation()).out == (BAD,)
    assert (await ward.cases())[0].case.phase is CasePhase.REPLACED


async def test_an_act_that_fails_is_on_record_and_tried_again(ward: Ward) -> None:
    await ward.accuse()
    healer = ward.healer()
    ward.world.refuses = {"drain"}
    assert [await ward.round(healer) for _ in range(2)] == [["drain id-b"]] * 2
    (stored,) = await ward.cases()
    assert [(act.act, act.detail) for act in stored.case.acts] == [("failed", "drain refused")]
    ward.world.refuses = set()
    assert await ward.round(healer) == ["drain id-b"]


async def both_hooks_at_once(ward: Ward, healer: Healer) -> None:
    """Until the next round has two to call."""
    await ward.accuse()
    for _ in range(2):
        await ward.round(healer)
    ward.world.run_moves(run_on("a", "c", attempt=2, attempt_step=19))
    ward.world.nodes = [each for each in ward.world.nodes if each.name != BAD]
    ward.house.clock.advance(IsolationRules().probation_s)
    await healer._leadership.renew()


async def acts_on_record(ward: Ward) -> list[tuple[str, str]]:
    (stored,) = await ward.cases()
    return [(act.act, act.detail) for act in stored.case.acts]


async def test_what_was_done_before_a_freeze_came_is_on_record_and_not_done_again(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    healer, called = ward.healer(), ward.world.call_out
    await both_hooks_at_once(ward, healer)

    async def freezing(hook: str, *, node: str, case_id: str) -> str:
        await ward.house.freeze(frozen=True)
        return await called(hook, node=node, case_id=case_id)

    monkeypatch.setattr(ward.world, "call_out", freezing)
    assert not await healer.run_round()
    assert ward.world.acts() == ["hook replace b"]
    assert (await acts_on_record(ward))[-1] == ("hook-replace", "done")
    await ward.house.freeze(frozen=False)
    assert await ward.round(healer) == ["hook probation b"]


async def test_what_could_not_be_written_down_is_not_done_again_and_written_later(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    healer = ward.healer()
    await both_hooks_at_once(ward, healer)

    async def away(*_args: object, **_named: object) -> None:
        raise ApiError("the service is away")

    with monkeypatch.context() as during:
        during.setattr(ward.house.api, "carry_healing_case_on", away)
        assert not await healer.run_round()
    assert ward.world.acts() == ["hook replace b"]
    assert await ward.round(healer) == ["hook probation b"]
    assert (await acts_on_record(ward))[-2:] == [("hook-replace", "done"), ("hook-probation", "done")]


async def test_of_several_drains_the_one_that_was_granted_is_on_record_beside_the_one_that_was_not(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = ward.world.drain
    ward.world.nodes.append(node(BAD, ray_id="id-z"))

    async def only_the_first(ray_id: str, *, reason: str, deadline_s: float) -> None:
        await drained(ray_id, reason=reason, deadline_s=deadline_s)
        if ray_id == "id-z":
            raise ActuationError("id-z: refused")

    monkeypatch.setattr(ward.world, "drain", only_the_first)
    await ward.accuse()
    assert await ward.round(ward.healer()) == ["drain id-b", "drain id-z"]
    assert await acts_on_record(ward) == [("drain", "id-b"), ("failed", "id-z: refused")]


async def test_the_head_is_never_touched_and_a_node_without_a_spare_stays(ward: Ward) -> None:
    ward.world.nodes = [head(), node("a"), node(BAD), *(replace(node(name), available={}) for name in "cdefghij")]
    ward.world.runs = [run_on("a", BAD)]
    await ward.accuse()
    assert await ward.round(ward.healer()) == []
    view = await ward.house.api.get_isolation()
    assert [each.refused for each in view.nodes] == ["spare"]
    ward.world.nodes = [head()]
    assert await ward.round(ward.healer()) == []


async def test_a_node_that_an_operator_keeps_out_has_a_case_too(ward: Ward) -> None:
    healer = ward.healer()
    await ward.round(healer)
    await ward.house.api.wish_for_node("d", Wish.KEEP_OUT)
    assert await ward.round(healer) == ["drain id-d"]
    assert await ward.round(healer) == ["hook replace d"]
    (stored,) = await ward.cases()
    assert (stored.case.phase, stored.case.accusation) == (CasePhase.KEPT, None)
    await ward.house.api.wish_for_node("d", Wish.RELEASE)
    assert await ward.round(healer) == ["hook release d"]


async def test_a_case_whose_hook_takes_long_holds_no_other_up(ward: Ward) -> None:
    ward.world.gate = asyncio.Event()
    healer = ward.healer(patience_s=0.0)
    await ward.round(healer)
    await ward.house.api.wish_for_node("d", Wish.KEEP_OUT)
    asked: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while "hook replace d" not in asked:
            asked += await ward.round(healer)
        await ward.house.api.wish_for_node("e", Wish.KEEP_OUT)
        while "hook replace e" not in asked:
            asked += await ward.round(healer)
        ward.world.gate.set()
        while healer._at_work:
            await asyncio.sleep(0.01)
    assert asked.count("hook replace d") == asked.count("hook replace e") == 1
    by_node = {each.case.node: each.case for each in await ward.cases()}
    assert [act.act for act in by_node["d"].acts] == ["drain", "hook-replace"]


async def test_a_case_that_cannot_be_carried_on_holds_no_other_up(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    healer = ward.healer()
    await ward.round(healer)
    await ward.house.api.wish_for_node("d", Wish.KEEP_OUT)
    assert await ward.round(healer) == ["drain id-d"]

    async def broken(hook: str, *, node: str, case_id: str) -> str:
        raise RuntimeError(f"a defect met with {hook} of {node} in {case_id}")

    monkeypatch.setattr(ward.world, "call_out", broken)
    await ward.house.api.wish_for_node("e", Wish.KEEP_OUT)
    await healer._leadership.renew()
    assert not await healer.run_round()
    assert ward.world.acts() == ["drain id-e"]


async def test_a_node_whose_case_cannot_be_opened_holds_no_other_up(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    healer = ward.healer()
    await ward.round(healer)
    await ward.accuse()

    async def refused(_verdict: str) -> None:
        raise ApiError("no such verdict")

    monkeypatch.setattr(ward.house.api, "get_fault_verdict", refused)
    await healer._leadership.renew()
    assert not await healer.run_round()
    await ward.house.api.wish_for_node("d", Wish.KEEP_OUT)
    assert not await healer.run_round()
    assert ward.world.acts() == ["drain id-d"]


async def test_a_release_whose_hook_fails_is_tried_again(ward: Ward) -> None:
    healer = ward.healer()
    await ward.round(healer)
    await ward.house.api.wish_for_node("d", Wish.KEEP_OUT)
    for _ in range(2):
        await ward.round(healer)
    await ward.house.api.wish_for_node("d", Wish.RELEASE)
    ward.world.refuses = {"hook"}
    assert [await ward.round(healer) for _ in range(2)] == [["hook release d"]] * 2
    assert (await ward.cases())[0].case.phase is CasePhase.KEPT
    ward.world.refuses = set()
    assert await ward.round(healer) == ["hook release d"]
    assert (await ward.cases())[0].case.phase is CasePhase.RELEASED
