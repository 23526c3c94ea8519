"""The acts of the demonstration: the plans match the documentation."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from deploy.controller.serve_settings import both_tables
from deploy.emulator.engine import Engine
from deploy.emulator.scenario import (
    ACTS,
    INPUT_TOKENS,
    MAX_GPUS,
    MAX_IN_FLIGHT,
    OUTPUT_TOKENS,
    POOLS,
    Act,
    accelerators,
)
from deploy.emulator.worker import WorkerSpec, tuning
from deploy.router.table import CellWeights, Route, RoutingTable
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.offers import builtin_prices
from planner import Plan, plan
from planner.policy import ExplainLevel

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def planned(act: Act) -> Plan:
    """The plan of an act."""
    return plan(
        act.request(today=NOW.date())
        .model_copy(update={"time_limit_s": 600.0})  # enough for a busy machine
        .explained(ExplainLevel.NONE),
        gpus=builtin_gpus(),
        models=builtin_models(),
        prices=builtin_prices(),
        now=NOW,
        clock_s=time.monotonic,
    )


ALLOCATIONS = ({("A100-80GB-SXM", 1.0): 1}, {("H100-SXM", 1.0): 1, ("L4", 1.0): 3}, {("H100-SXM", 0.7): 1})


@pytest.mark.parametrize(("act", "expected"), list(zip(ACTS, ALLOCATIONS, strict=True)), ids=[act.name for act in ACTS])
def test_each_act_has_its_allocation(act: Act, expected: Mapping[tuple[str, float | None], int]) -> None:
    found = planned(act)
    assert {(each.gpu, each.clock): each.count for each in found.allocation} == expected
    assert all(each.gpus_per_replica == 1 and each.count <= MAX_GPUS for each in found.allocation)
    assert found.power_w is not None
    assert found.power_w <= (act.limit_w or found.power_w)


def test_every_gpu_type_has_a_deployment_and_a_label() -> None:
    assert accelerators() == {"H100-SXM": "H100", "A100-80GB-SXM": "A100", "L4": "L4"}
    assert set(POOLS) == set(accelerators())


def table(version: str, weights: Mapping[str, float]) -> RoutingTable:
    return RoutingTable(
        version=version,
        input_tokens=(1000, 4000),
        output_tokens=(500,),
        share=((0.6,), (0.4,)),
        routes={name: Route(replicas=1, max_in_flight=2) for name in weights},
        cells=(CellWeights(row=0, column=0, weights=dict(weights)),),
    )


def test_the_intermediate_table_averages_both_plans() -> None:
    """With both, some route always has running replicas during the rollout."""
    found = both_tables(table("old", {"a": 1.0}), table("new", {"a": 0.2, "b": 0.8}))
    assert found == RoutingTable.model_validate(found.model_dump())
    assert all(weights == pytest.approx({"a": 0.6, "b": 0.4}) for weights in found.by_cell.values())
    assert set(found.routes) == {"a", "b"}


def preemptions(gpu: str, requests: int) -> int:
    engine = Engine(costs=tuning(WorkerSpec(gpu=gpu)).costs)
    for number in range(requests):
        engine.submit(str(number), prompt_tokens=min(INPUT_TOKENS), output_tokens=OUTPUT_TOKENS)
    while engine.in_flight:
        engine.advance(engine.next_s)
    return engine.preemptions


@pytest.mark.parametrize(("gpu", "deployment"), POOLS.items())
def test_the_requests_in_flight_fit_into_the_cache_of_a_replica(gpu: str, deployment: str) -> None:
    assert preemptions(gpu, MAX_IN_FLIGHT[deployment]) == 0


def test_one_more_request_does_not_fit_into_the_smallest_cache() -> None:
    assert preemptions("L4", MAX_IN_FLIGHT[POOLS["L4"]] + 1) > 0
