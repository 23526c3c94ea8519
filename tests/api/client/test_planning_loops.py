"""Planning loops with the client: the round trip of each operation against the service."""

import pytest

from api.client import ConflictError, NotFoundError
from api.schemas.leases import LeaseClaim, LeaseTerm
from api.schemas.planning_loops import LoopPlanRequest, LoopState
from api.schemas.tokens import TokenScope
from tests.api.client.planning_loop_examples import LOOP, LOOP_STATUS
from tests.api.client.test_operations import PLAN_REQUEST, SPEC
from tests.api.client.test_service import asynchronous
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def test_loops_are_created_read_replaced_and_deleted(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, TokenScope.ADMIN) as client:
        await client.create_target("chat", SPEC)
        made = await client.create_planning_loop("chat", LOOP)
        assert await client.get_planning_loop("chat") == made
        assert [loop async for loop in client.iter_planning_loops()] == [made.document]
        patient = LOOP.model_copy(update={"patience": 12})
        replaced = await client.replace_planning_loop("chat", patient, if_match=made.etag)
        assert (replaced.document.version, replaced.document.spec) == (2, patient)
        await client.delete_planning_loop("chat", if_match=replaced.etag)
        with pytest.raises(NotFoundError):
            await client.get_planning_loop("chat")


async def test_the_controller_reports_and_sets_plans_under_its_lease(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, TokenScope.ADMIN) as operator:
        await operator.create_target("chat", SPEC)
        await operator.create_planning_loop("chat", LOOP)
        plan = await operator.create_plan(PLAN_REQUEST)
        async with asynchronous(sqlite_service, TokenScope.REPORT) as controller:
            lease = await controller.create_lease("controller", LeaseClaim(holder="a", lease_s=15.0))
            held = LeaseTerm("controller", lease.document.term)
            state = LoopState(saving_windows=3, plan_id=plan.id)
            await controller.report_planning_loop_status(
                "chat", LOOP_STATUS.model_copy(update={"state": state}), held=held
            )
            request = LoopPlanRequest(plan_id=plan.id, loop_version=1, expected_plan_ids={"chat": None})
            done = await controller.set_planning_loop_plan("chat", request, held=held)
            with pytest.raises(ConflictError, match="is over"):
                await controller.set_planning_loop_plan("chat", request, held=LeaseTerm("controller", 9))
        assert done.target_versions == {"chat": 2}
        assert (await operator.get_target("chat")).document.spec.plan_id == plan.id
        assert (await operator.get_planning_loop_status("chat")).state == state
        (listed,) = [each async for each in operator.iter_planning_loop_statuses()]
        assert (listed.planning_loop, listed.status) == ("chat", LOOP_STATUS.model_copy(update={"state": None}))
