"""A plan that was solved on a stale stock: the controller writes nothing and names the stock, its age and the limit."""

from datetime import timedelta
from typing import Any

import pytest

from api.schemas.targets import Mode, Phase
from fleet.stock import FreeNodes, Stock, StockEntry
from planner import PlanRequest
from tests.deploy.controller.harness import Harness, app
from tests.planner.requests import from_offers, offer

pytestmark = pytest.mark.anyio
A100 = "A100-80GB-SXM"
OWN = offer("own/a100", A100, 1.0, market="owned", stock={"name": "prod"})
REFUSED = "stock 'prod' was observed 400 s before the plan was solved; allowed: at most 300 s; plan again"


def stock(harness: Harness, *, age_s: float) -> Stock:
    entry = StockEntry(
        gpu=A100, region="one", gpus_per_node=1, total=50, available=50, free=(FreeNodes(gpus=1, nodes=50),)
    )
    observed_at = harness.clock.now() - timedelta(seconds=age_s)
    return Stock(observed_at=observed_at, stale_after_s=300.0, source="a test", entries=(entry,))


async def planned(harness: Harness, **more: Any) -> str:
    request = PlanRequest.model_validate(from_offers() | {"offers": [OWN]} | more)
    return (await harness.api.create_plan(request)).id


async def test_a_plan_on_a_stale_stock_is_refused_until_it_is_planned_again(harness: Harness) -> None:
    serve = app(**{A100: 0})
    stored = await harness.api.create_stock("prod", stock(harness, age_s=400.0))
    await harness.register("chat", serve, plan_id=await planned(harness))
    controller = harness.controller()
    await harness.round(controller)
    refused = await harness.status("chat")
    assert refused.phase is Phase.FAILED
    assert REFUSED in (refused.message or "")
    assert refused.applied == {A100: 0}

    await harness.api.replace_stock("prod", stock(harness, age_s=0.0), if_match=stored.etag)
    await harness.change("chat", plan_id=await planned(harness))
    for _ in range(3):
        await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_a_stale_plan_is_not_recommended_either(harness: Harness) -> None:
    await harness.api.create_stock("prod", stock(harness, age_s=400.0))
    await harness.register("chat", app(**{A100: 0}), plan_id=await planned(harness), mode=Mode.RECOMMEND)
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, status.digest) == (Phase.FAILED, None)
    assert REFUSED in (status.message or "")
