"""The client on stored plans: selected by name and label, compared, explained and replayed."""

import pytest

from api.schemas.plans import ExplanationRequest, PlanReplayRequest
from api.schemas.tokens import TokenScope
from planner.policy import ExplainLevel
from tests.api.client.test_operations import PLAN_REQUEST
from tests.api.client.test_service import asynchronous
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def test_stored_plans_are_selected_compared_explained_and_replayed(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, TokenScope.ADMIN) as client:
        made = await client.create_plan(PLAN_REQUEST, name="first", labels={"team": "a"})
        other = await client.create_plan(PLAN_REQUEST.model_copy(update={"time_limit_s": 5.0}))
        chosen = [each.id async for each in client.iter_plans(labels="team=a", status=made.plan.status, limit=1)]
        assert chosen == [made.id]
        assert [each.path for each in (await client.compare_plans(made.id, other.id)).request] == ["time_limit_s"]
        explained = await client.explain_plan(made.id, ExplanationRequest(level=ExplainLevel.SHORT))
        assert (explained.plan_id, explained.same_mix) == (made.id, True)
        replayed = await client.replay_plan(made.id, PlanReplayRequest(hours=0.02))
        assert (replayed.hours, replayed.replay.verified) == (0.02, None), replayed.replay.obstacle
