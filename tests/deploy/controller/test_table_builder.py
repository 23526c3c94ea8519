"""A real plan becomes a table: options on their deployments, buckets as planned."""

from datetime import UTC, datetime
from typing import Any

import pytest

from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from deploy.controller.table_builder import MAX_IN_FLIGHT, routing_table
from planner.request import PlanRequest
from tests.planner.requests import solved

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BUCKETS = {"input_tokens": [100, 1000], "output_tokens": [50, 500], "share": [[0.25, 0.25], [0.25, 0.25]]}


def record(*options: dict[str, Any], rate_rps: float = 8.0) -> PlanRecord:
    """A plan as the planner makes it."""
    workload = {"name": "chat", "rate_rps": rate_rps, "buckets": BUCKETS, "options": list(options)}
    asked = {"workloads": [workload]}
    said = {"id": "p7", "created_at": NOW, "created_by": "token:a", "request": PlanRequest.model_validate(asked)}
    return PlanRecord.model_validate(said | {"plan": solved(asked)})


def option(
    name: str, gpu: str, max_rps: list[list[float]], *, price: float = 1.0, available: int = 9
) -> dict[str, Any]:
    return {"name": name, "gpu": gpu, "price_usd_per_h": price, "max_rps": max_rps, "available": available}


def target(**deployments: str) -> TargetSpec:
    application = {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": deployments}
    return TargetSpec.model_validate({"workload": "chat", "application": application})


SHORT = option("short", "L4", [[4, 0], [4, 0]])
LONG = option("long", "B200", [[0, 4], [0, 4]])


def test_each_bucket_goes_to_the_deployment_of_its_option() -> None:
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


def test_options_of_one_gpu_type_are_one_route() -> None:
    every = [[2.0, 2.0], [2.0, 2.0]]
    spot, owned = option("spot", "L4", every, available=2), option("owned", "L4", every, price=2.0)
    found = routing_table(record(spot, owned), target(L4="on-l4"), most_in_flight={"on-l4": 7})
    assert set(found.routes) == {"on-l4"}
    assert found.routes["on-l4"].most_in_flight == 7
    assert found.routes["on-l4"].replicas == 4
    assert all(weights == {"on-l4": 1.0} for weights in found.by_cell.values())


def test_replica_options_of_one_gpu_type_are_routes_of_their_own() -> None:
    one = option("one", "L4", [[2.0, 2.0], [2.0, 2.0]], available=2)
    two = option("two", "L4", [[6.0, 6.0], [6.0, 6.0]], available=1) | {"gpus": 2}
    plan = record(one, two, rate_rps=9.9)
    found = routing_table(plan, target(**{"L4": "on-l4", "L4/x2": "on-l4-2"}), most_in_flight={"on-l4-2": 128})
    assert {name: (route.replicas, route.most_in_flight) for name, route in found.routes.items()} == {
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


def test_a_request_in_two_halves_is_no_route() -> None:
    plan = record(SHORT, LONG)
    routing = {"chat": {key: {"a-prefill + b-decode": 1.0} for key in plan.plan.routing["chat"]}}
    split = plan.model_copy(update={"plan": plan.plan.model_copy(update={"routing": routing})})
    with pytest.raises(
        PlanUnusableError, match=r"by a-prefill \+ b-decode: a router sends each request to one deployment"
    ):
        routing_table(split, target(L4="on-l4", B200="on-b200"))


def test_what_an_engine_takes_at_once_has_a_default() -> None:
    found = routing_table(record(SHORT, LONG), target(L4="on-l4", B200="on-b200"))
    assert {route.most_in_flight for route in found.routes.values()} == {MAX_IN_FLIGHT}


@pytest.mark.parametrize(
    ("rate_rps", "gpus", "says"),
    [
        (8.0, ["L4"], "uses B200"),
        (800.0, ["L4", "B200"], "has nothing to apply"),
        (0.0, ["L4", "B200"], "sends no request of 'chat' anywhere"),
    ],
)
def test_plans_that_route_nothing(rate_rps: float, gpus: list[str], says: str) -> None:
    with pytest.raises(PlanUnusableError, match=says):
        routing_table(record(SHORT, LONG, rate_rps=rate_rps), target(**{gpu: f"on-{gpu}" for gpu in gpus}))
