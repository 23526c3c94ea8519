"""Replica options of one GPU type, each in its own deployment: rollout and return."""

from typing import Any

import pytest

from api.schemas.targets import Change, Phase
from planner.request import PlanRequest
from tests.deploy.actuators.serve_double import ServeDouble
from tests.deploy.controller.harness import WORKLOAD, Harness

pytestmark = pytest.mark.anyio

PARTS = {"B200": "on-b200", "B200/x2": "on-b200-2", "B200/wide": "on-b200-wide"}
OPTIONS = {"narrow": 1, "pair": 2, "wide": 2}  # name -> GPUs of a replica
NOW = {"on-b200": 3, "on-b200-2": 0, "on-b200-wide": 1}
NEXT = {"on-b200": 1, "on-b200-2": 2, "on-b200-wide": 0}


async def plan_of(harness: Harness, **counts: int) -> str:
    """A plan that needs exactly these replicas of the options, all of one GPU type."""
    options = [
        {"name": name, "gpu": "B200", "gpus": OPTIONS[name], "price_usd_per_h": 1.0, "max_rps": [[1.0]]}
        | {"available": count}
        for name, count in counts.items()
    ]
    workload: dict[str, Any] = {
        "name": WORKLOAD,
        "rate_rps": sum(counts.values()) - 0.5,
        "buckets": {"input_tokens": [1000], "output_tokens": [100], "share": [[1.0]]},
        "options": options,
    }
    return (await harness.api.create_plan(PlanRequest.model_validate({"workloads": [workload]}))).id


async def test_options_of_one_gpu_type_are_rolled_out_make_before_break_and_back(harness: Harness) -> None:
    serve = ServeDouble.running(**NOW)
    first, then = await plan_of(harness, narrow=3, wide=1), await plan_of(harness, narrow=1, pair=2)
    await harness.register("chat", serve, gpus=PARTS, plan_id=then)
    controller = harness.controller()

    await harness.round(controller, settle=False)
    status = await harness.status("chat")
    assert serve.writes == [("on-b200-2", 2)], "surplus replicas stay until the added ones run"
    assert status.planned == {"B200": 1, "B200/x2": 2, "B200/wide": 0}
    assert status.applied == {"B200": 3, "B200/x2": 0, "B200/wide": 1}
    assert status.changes[1] == Change(gpu="B200/wide", deployment="on-b200-wide", replicas_now=1, replicas_planned=0)

    for _ in range(4):
        await harness.round(controller)
    done = await harness.status("chat")
    assert (done.phase, done.changes, serve.counts) == (Phase.APPLIED, (), NEXT)
    assert serve.writes[1:] == [("on-b200", 1), ("on-b200-wide", 0)]

    await harness.change("chat", plan_id=first)
    for _ in range(4):
        await harness.round(controller)
    assert ((await harness.status("chat")).phase, serve.counts) == (Phase.APPLIED, NOW)


async def test_an_option_without_a_part_is_reported_and_nothing_is_applied(harness: Harness) -> None:
    serve = ServeDouble.running(**NOW)
    parts = {"B200/x1": "on-b200", "B200/wide": "on-b200-wide"}
    await harness.register("chat", serve, gpus=parts, plan_id=await plan_of(harness, narrow=1, pair=2))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    message = "uses B200/pair (x2), for which the target names no deployment; it has: B200/wide, B200/x1"
    assert message in (status.message or "")
    assert serve.writes == []
