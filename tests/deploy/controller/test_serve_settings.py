"""Settings of a plan for Serve deployments beside their counts: clock levels, and the router's table."""

from datetime import date
from typing import Any

import pytest

from api.schemas.applications import RayServeApplication
from api.schemas.target_state import Refusal, TargetState
from api.schemas.targets import Mode, Phase
from deploy.actuators.base import Step, TargetSnapshot
from deploy.common.errors import PlanUnusableError
from deploy.controller.config_changes import Progress, clock_changes, ready_changes, without_blocked_decreases
from deploy.controller.controller import Controller
from deploy.controller.plan_reader import planned_clocks
from deploy.controller.serve_settings import routing_table
from deploy.emulator.scenario import ACTS, POOLS, WORKLOAD, Act
from deploy.router.table import RoutingTable
from tests.deploy.actuators.serve_double import Deployment, ServeDouble
from tests.deploy.controller.harness import Harness

pytestmark = pytest.mark.anyio

H100, A100, L4 = "H100-SXM", "A100-80GB-SXM", "L4"
NIGHT, DAY, POWER_CUT = ACTS
UP, DOWN = clock_changes({"A": 1.0, "B": 0.7}, deployments={"A": "a", "B": "b"}, current={"A": 0.7, "B": 1.0})


def test_only_clocks_that_differ_are_changed() -> None:
    deployments = {"A": "a", "B": "b", "C": "c"}
    left = clock_changes({"A": 1.0, "B": 0.7}, deployments=deployments, current={"A": 0.7, "B": 0.7, "C": 0.3})
    assert left == (UP,)
    assert (UP.needs, DOWN.needs) == (Progress.ANY, Progress.EXACT)
    assert str(DOWN) == "clock of B: 1, planned 0.7"


@pytest.mark.parametrize(
    ("requested", "running", "expected"),
    [
        (1, 1, (UP,)),  # replicas to request
        (2, 1, (UP,)),  # replicas to wait for
        (3, 3, (UP,)),  # replicas to remove
        (2, 2, (UP, DOWN)),
    ],
)
def test_clocks_rise_at_any_time_and_drop_only_at_the_exact_planned_counts(
    requested: int, running: int, expected: tuple[object, ...]
) -> None:
    observation = TargetSnapshot(requested={"A": requested}, running={"A": running})
    assert ready_changes((UP, DOWN), wanted={"A": 2}, observation=observation) == expected


def test_clock_changes_do_not_block_removals() -> None:
    more = Step(part="A", replicas_before=1, replicas_after=2)
    less = Step(part="B", replicas_before=1, replicas_after=0)
    assert without_blocked_decreases((more, less), changes=(UP, DOWN)) == (more, less)


def test_a_full_clock_in_the_plan_restores_the_full_clock() -> None:
    (back,) = clock_changes({"A": 1.0}, deployments={"A": "a"}, current={"A": 0.7})
    assert (back.value, back.needs) == (1.0, Progress.ANY)


async def plan_id(harness: Harness, act: object = POWER_CUT) -> str:
    request = next(each for each in ACTS if each is act).request(today=date(2026, 11, 21))
    return (await harness.api.create_plan(request)).id


def serve_of(**counts: int) -> ServeDouble:
    return ServeDouble(
        {name: Deployment(requested=counts.get(gpu, 0), running=counts.get(gpu, 0)) for gpu, name in POOLS.items()},
    )


async def register(harness: Harness, serve: ServeDouble, *, follow_clocks: bool = True, **spec: Any) -> None:
    harness.targets["chat"] = serve
    described = {
        "dashboard_url": "http://chat:8265",
        "application": "chat",
        "deployments": POOLS,
        "follow_clocks": follow_clocks,
    }
    given = {"workload": WORKLOAD, "plan_id": await plan_id(harness)} | spec
    await harness.register_real("chat", RayServeApplication.model_validate(described), **given)


async def test_the_planned_clock_is_written_once_its_replicas_run_and_other_keys_stay(harness: Harness) -> None:
    serve = serve_of(**{"A100-80GB-SXM": 1})
    serve.deployments["on-h100"].user_config = {"expert_map": {"version": 3}}
    await register(harness, serve)
    controller, phases, clocks = harness.controller(), [], []
    for _ in range(6):
        await harness.round(controller)
        phases.append((await harness.status("chat")).phase)
        clocks.append(serve.deployments["on-h100"].user_config.get("clock", 1.0))
    assert phases[-1] is Phase.APPLIED
    assert clocks[0] == 1.0, "the old replicas still run: the clock must not drop yet"
    assert serve.deployments["on-h100"].user_config == {"expert_map": {"version": 3}, "clock": 0.7}
    assert serve.counts == {"on-h100": 1, "on-a100": 0, "on-l4": 0}
    assert phases.index(Phase.APPLIED) > clocks.index(0.7), "the plan is applied only once the clock was read back"
    assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="clock") == 1


async def test_a_plan_at_full_clock_restores_the_full_clock(harness: Harness) -> None:
    serve = serve_of(**{H100: 1})
    serve.deployments["on-h100"].user_config = {"clock": 0.7}
    await register(harness, serve, plan_id=await plan_id(harness, DAY))
    controller = harness.controller()
    await harness.round(controller)
    assert serve.deployments["on-h100"].user_config["clock"] == 1.0
    assert serve.deployments["on-h100"].requested == 1, "a count that was scaled stays"


@pytest.mark.parametrize(
    ("spec", "phase"),
    [
        ({"mode": Mode.OBSERVE}, Phase.OBSERVED),
        ({"mode": Mode.RECOMMEND}, Phase.RECOMMENDED),
        ({"require_approval": True}, Phase.AWAITING_APPROVAL),
        ({"follow_clocks": False}, Phase.APPLIED),
    ],
)
async def test_no_clock_is_written_without_permission_to_write(
    harness: Harness, spec: dict[str, Any], phase: Phase
) -> None:
    serve = serve_of(**{H100: 1})
    await register(harness, serve, **spec)
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is phase
    assert ("clock of H100-SXM: 1, planned 0.7" in (status.message or "")) is (phase is not Phase.APPLIED)
    assert serve.deployments["on-h100"].user_config == {}


async def test_a_freeze_blocks_clock_changes(harness: Harness) -> None:
    serve = serve_of(**{H100: 1})
    await register(harness, serve)
    await harness.freeze(frozen=True)
    await harness.round(harness.controller())
    assert (await harness.status("chat")).phase is Phase.FROZEN
    assert serve.deployments["on-h100"].user_config == {}


async def test_a_plan_with_two_clocks_for_one_deployment_is_refused(harness: Harness) -> None:
    serve = serve_of(**{H100: 1})
    await register(harness, serve)
    record = await harness.api.get_plan(await plan_id(harness))
    spec = (await harness.api.get_target("chat")).document.spec
    assert planned_clocks(record, spec) == {H100: 0.7}
    twice = (record.plan.allocation[0], record.plan.allocation[0].model_copy(update={"clock": 1.0}))
    doubled = record.model_copy(update={"plan": record.plan.model_copy(update={"allocation": twice})})
    with pytest.raises(PlanUnusableError, match=r"H100-SXM replicas at clocks 0\.7 and 1; a deployment's replicas"):
        planned_clocks(doubled, spec)


async def test_clock_changes_wait_for_their_approval(harness: Harness) -> None:
    serve = serve_of(**{H100: 1})
    await register(harness, serve, require_approval=True)
    controller = harness.controller()
    await harness.round(controller)
    (setting,) = (await harness.status("chat")).settings
    assert (setting.gpu, setting.deployment, setting.key) == (H100, "on-h100", "clock")
    assert (setting.now, setting.planned) == ("1", "0.7")
    await harness.approve("chat")
    await harness.round(controller)
    assert serve.deployments["on-h100"].user_config == {"clock": 0.7}
    await harness.round(controller)
    status = await harness.status("chat")
    assert (status.phase, status.settings, status.digest) == (Phase.APPLIED, (), None)


async def test_a_rollback_accepts_an_old_plan_and_ends_once_clocks_are_restored(harness: Harness) -> None:
    serve = serve_of(**{H100: 1, L4: 3})
    serve.deployments["on-h100"].user_config = {"clock": 0.7}
    day = await plan_id(harness, DAY)
    await register(harness, serve)
    target = (await harness.api.get_target("chat")).document
    refusal = Refusal(
        plan_id=target.spec.plan_id or "", target_version=target.version, at=harness.clock.now(), reason="slow"
    )
    harness.clock.advance(8 * 86_400.0)
    controller = harness.controller()
    await harness.round(controller)
    before = await harness.status("chat")
    state = TargetState(verified_plan_id=day, refused=refusal)
    await harness.api.report_target_status("chat", before.model_copy(update={"state": state}))
    phases = []
    for _ in range(3):
        serve.deployments["on-h100"].requested = serve.deployments["on-h100"].running = 1
        await harness.round(harness.controller())
        phases.append((await harness.status("chat")).phase)
    assert serve.deployments["on-h100"].user_config["clock"] == 1.0
    assert phases[0] is Phase.ROLLING_BACK
    assert phases[-1] is Phase.ROLLED_BACK


async def test_a_plan_without_clocks_restores_the_full_clock(harness: Harness) -> None:
    serve = ServeDouble({"on-l4": Deployment(requested=2, running=2, user_config={"clock": 0.7})})
    application = {
        "dashboard_url": "http://chat:8265", "application": "chat", "deployments": {L4: "on-l4"}, "follow_clocks": True
    }  # fmt: skip
    harness.targets["chat"] = serve
    plan = await harness.plan({L4: 2})
    await harness.register_real("chat", RayServeApplication.model_validate(application), plan_id=plan)
    controller = harness.controller()
    for _ in range(2):
        await harness.round(controller)
    assert serve.deployments["on-l4"].user_config == {"clock": 1.0}
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_an_impossible_rollback_is_reported_and_an_approval_retries_the_plan(harness: Harness) -> None:
    serve = serve_of(**{H100: 1, L4: 3})
    await register(harness, serve)
    target = (await harness.api.get_target("chat")).document
    refusal = Refusal(
        plan_id=target.spec.plan_id or "", target_version=target.version, at=harness.clock.now(), reason="slow"
    )
    await harness.round(harness.controller())
    before = await harness.status("chat")
    good = await harness.plan({"T4": 1}, workload=WORKLOAD)  # a GPU type without a deployment in the target
    state = TargetState(verified_plan_id=good, refused=refusal)
    await harness.api.report_target_status("chat", before.model_copy(update={"state": state}))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert "rollback is not possible" in (status.message or "")
    assert status.digest is not None
    await harness.approve("chat")
    await harness.round(harness.controller())
    assert (await harness.status("chat")).phase is Phase.APPLYING


async def test_waiting_for_requested_replicas_accepts_an_old_plan(harness: Harness) -> None:
    serve = serve_of(**{A100: 1})
    await TestRouter().begin(harness, serve)
    for _ in range(2):
        await harness.round(harness.controller())
    harness.clock.advance(8 * 86_400.0)
    serve.deployments["Router"].requested = 2  # another router replica starts
    await harness.round(harness.controller(), settle=False)
    status = await harness.status("chat")
    assert (status.phase, status.digest) == (Phase.APPLYING, None)


class TestRouter:
    """The application has an ingress that splits requests by the plan's weights."""

    async def begin(self, harness: Harness, serve: ServeDouble, *, url: str | None = None, **spec: Any) -> None:
        serve.deployments["Router"] = Deployment(requested=1, running=1)
        application = {
            "dashboard_url": "http://chat:8265",
            "application": "chat",
            "deployments": POOLS,
            "router": {"url": url, "max_in_flight": {"on-l4": 7}},
        }
        harness.targets["chat"] = serve
        given = {"workload": WORKLOAD, "plan_id": await plan_id(harness, NIGHT)} | spec
        await harness.register_real("chat", RayServeApplication.model_validate(application), **given)

    async def settled(self, harness: Harness, act: Act) -> Controller:
        """Apply the first plan, then switch the target to another one."""
        controller = harness.controller()
        for _ in range(2):
            await harness.round(controller)
        assert (await harness.status("chat")).phase is Phase.APPLIED
        await harness.change("chat", plan_id=await plan_id(harness, act))
        return controller

    async def planned(self, harness: Harness) -> RoutingTable:
        """The routing table of the target's current plan."""
        spec = (await harness.api.get_target("chat")).document.spec
        record = await harness.api.get_plan(spec.plan_id or "")
        return routing_table(record, spec, max_in_flight={"on-l4": 7})

    def written_table(self, serve: ServeDouble) -> RoutingTable | None:
        table = serve.deployments["Router"].user_config.get("table")
        return None if table is None else RoutingTable.model_validate(table)

    async def test_a_first_table_is_written_beside_other_keys(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve)
        serve.deployments["Router"].user_config = {"watts": None}
        controller = harness.controller()
        await harness.round(controller)
        assert (await harness.status("chat")).phase is Phase.APPLYING
        assert self.written_table(serve) == await self.planned(harness)
        assert "watts" in serve.deployments["Router"].user_config
        await harness.round(controller)
        assert (await harness.status("chat")).phase is Phase.APPLIED
        assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="table") == 1

    async def test_weights_move_before_any_replica_is_removed(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve)
        controller = await self.settled(harness, DAY)
        history: list[tuple[str, int, int]] = []
        while (await harness.status("chat")).phase is not Phase.APPLIED or not history:
            await harness.round(controller, settle=len(history) > 1)
            if len(history) == 0:  # the replicas start one after the other
                serve.deployments["on-h100"].running = serve.deployments["on-l4"].running = 1
            table = self.written_table(serve)
            assert table is not None
            history.append((table.version, serve.deployments["on-a100"].requested, serve.deployments["on-l4"].running))
            assert all(serve.deployments[name].running for name in table.routes)
        day = await self.planned(harness)
        versions = [version for version, _, _ in history]
        assert self.written_table(serve) == day
        assert versions.index(f"{day.version}+") < versions.index(day.version)
        (removed_at,) = [at for at, (_, requested, _) in enumerate(history) if requested == 0][:1]
        assert versions.index(day.version) < removed_at, "at least one reconcile later, after the table was read back"
        assert serve.counts == {"on-h100": 1, "on-a100": 0, "on-l4": 3, "Router": 1}

    async def test_no_replica_is_removed_before_every_router_replica_has_the_table(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve)
        controller = await self.settled(harness, DAY)
        for _ in range(8):
            serve.deployments["Router"].requested = 2  # one of the two router replicas is slow
            serve.deployments["Router"].running = 1
            await harness.round(controller)
            serve.deployments["Router"].running = 1
        status = await harness.status("chat")
        assert status.phase is Phase.APPLYING
        assert f"table of Router: {status.plan_id}, not yet in every replica" in (status.message or "")
        assert serve.deployments["on-a100"].requested == 1
        serve.deployments["Router"].running = 2
        for _ in range(3):
            await harness.round(controller)
        assert serve.deployments["on-a100"].requested == 0

    async def test_a_table_is_in_force_only_once_the_router_reports_its_version(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve, url="http://chat:8000/fleetwright/table")
        controller = harness.controller()
        for _ in range(3):
            await harness.round(controller)
        status = await harness.status("chat")
        assert status.phase is Phase.APPLYING, "the router reports no version"
        serve.table_in_force = "another"
        await harness.round(controller)
        assert "not yet in every replica" in ((await harness.status("chat")).message or "")
        serve.table_in_force = status.plan_id
        await harness.round(controller)
        assert (await harness.status("chat")).phase is Phase.APPLIED

    async def test_an_invalid_table_counts_as_no_table(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve, mode=Mode.RECOMMEND)
        serve.deployments["Router"].user_config = {"table": {"version": 3}}
        await harness.round(harness.controller())
        status = await harness.status("chat")
        assert status.phase is Phase.RECOMMENDED
        (setting,) = status.settings
        assert (setting.gpu, setting.key, setting.now, setting.planned) == (None, "table", None, status.plan_id)
        assert status.digest is not None

    async def test_another_plan_of_the_same_counts_only_writes_its_table(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve)
        controller = await self.settled(harness, NIGHT)
        for _ in range(2):
            await harness.round(controller)
        assert self.written_table(serve) == await self.planned(harness)
        assert [name for name, _ in serve.writes if name != "Router"] == []

    async def test_a_freeze_blocks_the_table(self, harness: Harness) -> None:
        serve = serve_of(**{A100: 1})
        await self.begin(harness, serve)
        await harness.freeze(frozen=True)
        await harness.round(harness.controller())
        assert (await harness.status("chat")).phase is Phase.FROZEN
        assert self.written_table(serve) is None

    @pytest.mark.parametrize(
        ("router", "message"),
        [
            ({"deployment": "on-l4"}, r"router\.deployment: allowed: a deployment that none of deployments names"),
            ({"max_in_flight": {"on-t4": 3}}, r"router\.max_in_flight\.on-t4: allowed: on-a100, on-h100, on-l4"),
        ],
    )
    def test_router_settings_are_checked_against_the_deployments(self, router: dict[str, Any], message: str) -> None:
        application = {"dashboard_url": "http://chat:8265", "application": "chat", "deployments": POOLS}
        with pytest.raises(ValueError, match=message):
            RayServeApplication.model_validate(application | {"router": router})
