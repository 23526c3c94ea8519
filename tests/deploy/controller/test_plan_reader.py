"""Replicas per GPU from a stored plan, and plans that must not be applied."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api.client import AsyncClient
from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from deploy.controller.plan_reader import PlanReader, check_fresh, planned_replicas
from tests.deploy.controller.harness import request_for

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DAY_S = 86_400.0


def allocation(gpu: str, count: int, **changes: Any) -> dict[str, Any]:
    entry = {"workload": "chat", "option": f"{gpu}-{count}", "gpu": gpu, "count": count, "gpus_per_replica": 1}
    return entry | {"offer": None, "busy": 0.5, "power_w": 700.0} | changes


def record(*allocations: dict[str, Any], **plan: Any) -> PlanRecord:
    described = {"status": "optimal", "solver": "highs", "solve_s": 0.1, "planned_at": NOW, "allocation": allocations}
    request = request_for({"B200": 1})
    return PlanRecord.model_validate(
        {"id": "p1", "created_at": NOW, "created_by": "token:a", "request": request, "plan": described | plan}
    )


def target(*gpus: str) -> TargetSpec:
    deployments = {gpu: f"on-{gpu}" for gpu in gpus}
    application = {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": deployments}
    return TargetSpec.model_validate({"workload": "chat", "application": application})


def test_replicas_of_a_gpu_from_several_offers_are_summed() -> None:
    plan = record(allocation("B200", 2, offer="spot"), allocation("B200", 3, offer="owned"), allocation("L4", 1))
    assert planned_replicas(plan, target("B200", "L4", "T4")) == {"B200": 5, "L4": 1, "T4": 0}


def test_replicas_of_other_workloads_are_not_counted() -> None:
    plan = record(allocation("B200", 2), allocation("L4", 7, workload="search"))
    assert planned_replicas(plan, target("B200")) == {"B200": 2}


def test_a_plan_without_allocations_has_zero_replicas() -> None:
    assert planned_replicas(record(), target("B200")) == {"B200": 0}


@pytest.mark.parametrize("status", ["infeasible", "time_limit"])
def test_a_plan_without_an_allocation_is_refused_with_its_reason(status: str) -> None:
    plan = record(status=status, explanation=["3 more B200 are needed", "and more"])
    with pytest.raises(PlanUnusableError, match=rf"plan p1 is {status} .*\(3 more B200 are needed\)$"):
        planned_replicas(plan, target("B200"))


def test_a_feasible_plan_is_accepted_without_optimality() -> None:
    assert planned_replicas(record(allocation("B200", 2), status="feasible"), target("B200")) == {"B200": 2}


def test_replicas_of_two_sizes_do_not_fit_one_deployment() -> None:
    plan = record(allocation("B200", 2), allocation("B200", 1, gpus_per_replica=4))
    with pytest.raises(PlanUnusableError, match=r"wants B200 replicas of 1 and 4 GPUs; .* are all alike"):
        planned_replicas(plan, target("B200"))


@pytest.mark.parametrize("age_s", [0.0, 2 * DAY_S, -60.0])
def test_a_plan_within_the_maximum_age_is_fresh(age_s: float) -> None:
    check_fresh(record(), now=NOW + timedelta(seconds=age_s), max_age_s=2 * DAY_S)


def test_a_plan_beyond_the_maximum_age_is_not_fresh() -> None:
    with pytest.raises(PlanUnusableError, match=r"plan p1 is 2\.5 days old; allowed: at most 2 days"):
        check_fresh(record(), now=NOW + timedelta(days=2.5), max_age_s=2 * DAY_S)


@pytest.mark.anyio
async def test_a_plan_is_requested_once_while_it_is_in_use() -> None:
    requested = []

    def answer(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.path)
        return httpx.Response(200, content=record(allocation("B200", 2)).model_dump_json())

    async with AsyncClient("http://fleet.test", transport=httpx.MockTransport(answer)) as api:
        plans = PlanReader(api)
        for _ in range(3):
            await plans.get("p1")
            plans.forget_all_but(["p1", None])
        assert requested == ["/v1/plans/p1"]
        plans.forget_all_but([None])
        await plans.get("p1")
    assert requested == ["/v1/plans/p1"] * 2


@pytest.mark.anyio
async def test_the_error_for_a_missing_plan_names_it() -> None:
    nothing = httpx.MockTransport(lambda _request: httpx.Response(404))
    async with AsyncClient("http://fleet.test", transport=nothing) as api:
        with pytest.raises(PlanUnusableError, match="plan 'p1' does not exist"):
            await PlanReader(api).get("p1")
