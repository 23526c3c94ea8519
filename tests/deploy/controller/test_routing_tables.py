"""Routing tables of plans, and the steps from one table to the next."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.actuators.base import TargetSnapshot
from deploy.common.errors import PlanUnusableError
from deploy.controller.config_changes import Progress, ready_changes, without_blocked_decreases
from deploy.controller.rollout import plan_changes
from deploy.controller.serve_settings import MAX_IN_FLIGHT, RouterState, routing_table, table_changes
from deploy.router.table import CellWeights, Route, RoutingTable
from planner.request import PlanRequest
from tests.planner.requests import solved

NAMES = ("a", "b", "c")
SHARE = ((1.0,),)


def table(version: str, replicas: Mapping[str, int], *, edges: tuple[int, ...] = (100,)) -> RoutingTable:
    """A table whose weights are proportional to the replicas."""
    used = {name: count for name, count in replicas.items() if count}
    total = sum(used.values())
    return RoutingTable(
        version=version,
        input_tokens=edges,
        output_tokens=(10,),
        share=SHARE * len(edges),
        routes={name: Route(replicas=count, max_in_flight=8) for name, count in used.items()},
        cells=(CellWeights(row=0, column=0, weights={name: count / total for name, count in used.items()}),),
    )


def router(table: RoutingTable | None, *, in_every_replica: bool = True) -> RouterState:
    return RouterState(deployment="Router", table=table, in_every_replica=in_every_replica)


OLD, NEW = table("old", {"a": 2}), table("new", {"b": 1, "c": 1})


def test_no_change_is_left_once_every_router_replica_has_the_table() -> None:
    assert table_changes(NEW, router=router(NEW), running={"b": 1, "c": 1}) == ()
    (left,) = table_changes(NEW, router=router(NEW, in_every_replica=False), running={"b": 1, "c": 1})
    assert (left.is_written, left.needs) == (True, Progress.ALL_RUNNING), "written, but not yet in every replica"


def test_an_intermediate_table_is_written_once_every_new_deployment_runs_a_replica() -> None:
    (goal,) = table_changes(NEW, router=router(OLD), running={"a": 2, "b": 1, "c": 0})
    assert (goal.current, goal.planned, goal.needs) == ("old", "new", Progress.ALL_RUNNING)
    half, goal = table_changes(NEW, router=router(OLD), running={"a": 2, "b": 1, "c": 1})
    assert (half.planned, half.needs, half.is_intermediate) == ("new+", Progress.ANY, True)
    assert RoutingTable.model_validate(half.value).by_cell[0, 0] == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert (
        table_changes(NEW, router=router(RoutingTable.model_validate(half.value)), running={"b": 1, "c": 1})[0].planned
        == "new"
    )


def test_plans_with_different_buckets_have_no_intermediate_table() -> None:
    other = table("new", {"b": 1}, edges=(50, 100))
    (goal,) = table_changes(other, router=router(OLD), running={"a": 2, "b": 1})
    assert (goal.planned, goal.needs) == ("new", Progress.ALL_RUNNING)


@pytest.mark.parametrize(
    ("running", "when"), [({"b": 1, "c": 0}, Progress.ALL_RUNNING), ({"b": 1, "c": 2}, Progress.ANY)]
)
def test_a_router_without_a_table_gets_one_once_its_deployments_run(running: dict[str, int], when: Progress) -> None:
    (goal,) = table_changes(NEW, router=router(None), running=running)
    assert (goal.current, goal.planned, goal.needs) == (None, "new", when)


def test_a_table_version_written_by_others_is_reported_in_one_line() -> None:
    odd = OLD.model_copy(update={"version": "a\nb"})
    assert table_changes(NEW, router=router(odd), running={})[0].change.now == "a b"


counts = st.fixed_dictionaries({name: st.integers(0, 4) for name in NAMES}).filter(lambda found: any(found.values()))


@given(before=counts, after=counts, data=st.data())
def test_tables_follow_running_replicas_and_removals_follow_the_table(
    before: dict[str, int], after: dict[str, int], data: st.DataObject
) -> None:
    """For any order in which replicas start and router replicas receive the table."""
    requested, running = dict(before), dict(before)
    written: RoutingTable | None = table("before", before) if data.draw(st.booleans()) else None
    everywhere, planned = True, table("after", after)
    for _ in range(60):
        observation = TargetSnapshot(requested=dict(requested), running=dict(running))
        changes = table_changes(planned, router=router(written, in_every_replica=everywhere), running=running)
        steps = without_blocked_decreases(
            plan_changes(wanted=after, observation=observation, max_step=2), changes=changes
        )
        for change in ready_changes(changes, wanted=after, observation=observation):
            written, everywhere = RoutingTable.model_validate(change.value), False
        for step in steps:
            if step.replicas_after < step.replicas_before:
                assert written == planned
                assert everywhere
                assert all(running[name] >= count for name, count in after.items())
            requested[step.part] = step.replicas_after
        for name in NAMES:
            running[name] = min(running[name], requested[name])  # removals take effect immediately
            if running[name] < requested[name] and data.draw(st.booleans()):
                running[name] += 1
        everywhere = everywhere or data.draw(st.booleans())
        assert written is None or all(running[name] > 0 for name in written.routes), (
            "a table names a deployment without running replicas"
        )
        assert all(running[name] >= min(before[name], after[name]) for name in NAMES)
        if not changes and running == after:
            break
    else:
        for name in NAMES:  # the rollout has not ended, but all additions are requested
            assert requested[name] >= after[name]


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BUCKETS = {"input_tokens": [100, 1000], "output_tokens": [50, 500], "share": [[0.25, 0.25], [0.25, 0.25]]}


def record(*options: dict[str, Any], rate_rps: float = 8.0) -> PlanRecord:
    """A plan solved by the planner."""
    workload = {"name": "chat", "rate_rps": rate_rps, "buckets": BUCKETS, "options": list(options)}
    request = {"workloads": [workload]}
    fields = {"id": "p7", "created_at": NOW, "created_by": "token:a", "request": PlanRequest.model_validate(request)}
    return PlanRecord.model_validate(fields | {"plan": solved(request)})


def option(
    name: str, gpu: str, max_rps: list[list[float]], *, price: float = 1.0, available: int = 9
) -> dict[str, Any]:
    return {"name": name, "gpu": gpu, "price_usd_per_h": price, "max_rps": max_rps, "available": available}


def target(**deployments: str) -> TargetSpec:
    application = {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": deployments}
    return TargetSpec.model_validate({"workload": "chat", "application": application})


SHORT = option("short", "L4", [[4, 0], [4, 0]])
LONG = option("long", "B200", [[0, 4], [0, 4]])


def test_each_bucket_is_routed_to_the_deployment_of_its_option() -> None:
    found = routing_table(record(SHORT, LONG), target(L4="on-l4", B200="on-b200", T4="on-t4"))
    assert found.by_cell == {
        (0, 0): {"on-l4": 1.0},
        (0, 1): {"on-b200": 1.0},
        (1, 0): {"on-l4": 1.0},
        (1, 1): {"on-b200": 1.0},
    }
    assert found.version == "p7"
    assert {name: route.replicas for name, route in found.routes.items()} == {"on-l4": 1, "on-b200": 1}
    assert (found.input_tokens, found.share) == ((100, 1000), ((0.25, 0.25), (0.25, 0.25)))


def test_offers_of_one_gpu_type_share_one_route() -> None:
    every = [[2.0, 2.0], [2.0, 2.0]]
    spot, owned = option("spot", "L4", every, available=2), option("owned", "L4", every, price=2.0)
    found = routing_table(record(spot, owned), target(L4="on-l4"), max_in_flight={"on-l4": 7})
    assert set(found.routes) == {"on-l4"}
    assert found.routes["on-l4"].max_in_flight == 7
    assert found.routes["on-l4"].replicas == 4
    assert all(weights == {"on-l4": 1.0} for weights in found.by_cell.values())


def test_replica_options_of_one_gpu_type_have_their_own_routes() -> None:
    one = option("one", "L4", [[2.0, 2.0], [2.0, 2.0]], available=2)
    two = option("two", "L4", [[6.0, 6.0], [6.0, 6.0]], available=1) | {"gpus": 2}
    plan = record(one, two, rate_rps=9.9)
    found = routing_table(plan, target(**{"L4": "on-l4", "L4/x2": "on-l4-2"}), max_in_flight={"on-l4-2": 128})
    assert {name: (route.replicas, route.max_in_flight) for name, route in found.routes.items()} == {
        "on-l4": (2, MAX_IN_FLIGHT),
        "on-l4-2": (1, 128),
    }
    planned = plan.plan.routing["chat"]
    for weights, (name, by_option) in zip(found.by_cell.values(), planned.items(), strict=True):
        assert weights.get("on-l4", 0.0) == pytest.approx(by_option.get("one", 0.0)), name
        assert weights.get("on-l4-2", 0.0) == pytest.approx(by_option.get("two", 0.0)), name
    carried = {name: sum(w.get(name, 0.0) for w in found.by_cell.values()) / 4 for name in found.routes}
    assert carried["on-l4-2"] * 9.9 <= 6.0
    assert carried["on-l4"] * 9.9 <= 4.0


def test_a_disaggregated_option_cannot_be_routed() -> None:
    plan = record(SHORT, LONG)
    routing = {"chat": {key: {"a-prefill + b-decode": 1.0} for key in plan.plan.routing["chat"]}}
    split = plan.model_copy(update={"plan": plan.plan.model_copy(update={"routing": routing})})
    with pytest.raises(
        PlanUnusableError, match=r"by a-prefill \+ b-decode: a router sends each request to one deployment"
    ):
        routing_table(split, target(L4="on-l4", B200="on-b200"))


def test_most_in_flight_has_a_default() -> None:
    found = routing_table(record(SHORT, LONG), target(L4="on-l4", B200="on-b200"))
    assert {route.max_in_flight for route in found.routes.values()} == {MAX_IN_FLIGHT}


@pytest.mark.parametrize(
    ("rate_rps", "gpus", "message"),
    [
        (8.0, ["L4"], "uses B200"),
        (800.0, ["L4", "B200"], "has nothing to apply"),
        (0.0, ["L4", "B200"], "sends no request of 'chat' anywhere"),
    ],
)
def test_plans_without_routes_are_refused(rate_rps: float, gpus: list[str], message: str) -> None:
    with pytest.raises(PlanUnusableError, match=message):
        routing_table(record(SHORT, LONG, rate_rps=rate_rps), target(**{gpu: f"on-{gpu}" for gpu in gpus}))
