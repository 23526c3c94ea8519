"""Failures of targets and the API stay isolated, and the next controller continues the work of a killed one."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from api.client import AsyncClient
from api.schemas.targets import Phase, Target
from api.schemas.tokens import TokenScope
from deploy.common.leader_election import LeaseSettings
from deploy.common.leader_loop import ALLOWANCE, Liveness
from deploy.controller.reconcile import ControllerSettings
from tests.deploy.actuators.serve_double import ServeDouble, answering, raising
from tests.deploy.controller.harness import Harness, app
from tests.testbed.service import TOKENS
from tests.testbed.soak import SOAK

pytestmark = pytest.mark.anyio


class KilledError(BaseException):
    """Stands for the end of the controller's process."""


async def test_an_unreachable_target_fails_and_the_others_are_reconciled(harness: Harness) -> None:
    plan_id = await harness.plan({"B200": 2})
    gone, fine = app(B200=1), app(B200=1)
    gone.interruptions = [raising(httpx.ConnectError)] * 100
    await harness.register("gone", gone, plan_id=plan_id)
    await harness.register("fine", fine, plan_id=plan_id)
    assert await harness.round(harness.controller()), "a reconcile that reports a failed target is successful"
    status = await harness.status("gone")
    assert (status.phase, status.message) == (Phase.FAILED, "http://gone:8265/ does not respond: broken on purpose")
    assert fine.writes == [("on-B200", 2)]


async def test_a_failing_target_is_retried_with_exponential_backoff(harness: Harness) -> None:
    serve = app(B200=1)
    serve.interruptions = [answering(401)] * 100
    await harness.register("chat", serve)
    controller = harness.controller()
    tried = []
    for _ in range(30):
        before = len(serve.requests)
        await harness.round(controller)
        tried.append(len(serve.requests) > before)
    assert [number for number, was_tried in enumerate(tried) if was_tried] == [0, 1, 3, 7, 15, 27]


async def test_a_target_that_recovers_is_reconciled_again(harness: Harness) -> None:
    serve = app(B200=1)
    serve.interruptions = [answering(401)]
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    controller = harness.controller()
    phases = []
    for _ in range(3):
        await harness.round(controller)
        phases.append((await harness.status("chat")).phase)
    assert phases == [Phase.FAILED, Phase.APPLYING, Phase.APPLIED]


async def test_one_successful_reconcile_resets_the_backoff(harness: Harness) -> None:
    serve = app(B200=1)
    serve.interruptions = [answering(401), answering(401), let_through, answering(401)]
    await harness.register("chat", serve)
    controller = harness.controller()
    phases = []
    for _ in range(6):
        await harness.round(controller)
        phases.append((await harness.status("chat")).phase)
    failed, observed = Phase.FAILED, Phase.OBSERVED
    assert phases == [failed, failed, failed, observed, failed, observed], "after 5 s, after 10 s, and after 5 s again"


async def test_a_changed_registration_is_reconciled_immediately(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2, "L40S": 2}))
    controller = harness.controller()
    for _ in range(4):
        await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.FAILED
    await harness.change("chat", plan_id=await harness.plan({"B200": 2}))
    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.APPLYING


async def test_a_target_that_refuses_a_change_fails_with_planned_and_applied_counts(harness: Harness) -> None:
    serve = app(B200=1)
    serve.external_scaler_enabled, serve.deployments["on-B200"].autoscaled = False, True
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, status.planned, status.applied) == (Phase.FAILED, {"B200": 2}, {"B200": 1})
    assert "external_scaler_enabled: true" in (status.message or "")


async def test_a_long_multi_line_error_is_shortened_to_one_line(harness: Harness) -> None:
    serve = app(B200=1)
    serve.status, serve.message = "DEPLOY_FAILED", "Traceback:\n\tline\x00\n" * 100
    await harness.register("chat", serve)
    await harness.round(harness.controller())
    message = (await harness.status("chat")).message or ""
    assert message.startswith("Serve reports DEPLOY_FAILED: Traceback: line Traceback: line")
    assert (len(message), message[-1]) == (500, "…")


async def test_a_target_that_never_responds_times_out(harness: Harness) -> None:
    hanging, fine = app(B200=1), app(B200=1)
    hanging.interruptions = [forever]
    await harness.register("hanging", hanging)
    await harness.register("fine", fine)
    await harness.round(harness.controller(settings=ControllerSettings(target_timeout_s=0.05)))
    status = await harness.status("hanging")
    assert (status.phase, status.message) == (Phase.FAILED, "not done within 0.05 s")
    assert (await harness.status("fine")).phase is Phase.OBSERVED


async def test_a_hanging_target_does_not_delay_the_others(harness: Harness) -> None:
    """The first reconcile of one target never ends; the other target is still reconciled."""
    hanging, fine = app(B200=1), app(B200=1, L4=1)
    hanging.interruptions = [forever]
    plan_id = await harness.plan({"B200": 2})
    await harness.register("hanging", hanging, plan_id=plan_id, gpus={"B200": "on-B200"})
    await harness.register("fine", fine, plan_id=plan_id)
    done = asyncio.Event()

    async def next_period(period_s: float) -> None:
        harness.clock.advance(period_s)
        fine.settle()
        if fine.counts == {"on-B200": 2, "on-L4": 0}:
            done.set()
        await harness.api.get_freeze()  # a period takes as long as a request, however slow the machine is

    # The clock advances faster than the lease is renewed.
    lease = LeaseSettings(holder="only-controller", lease_s=3600.0)
    running = asyncio.create_task(harness.controller(sleep=next_period, lease=lease).run())
    async with asyncio.timeout(30):
        await done.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(hanging.requests) == 1, "a target in progress is not reconciled a second time"


async def test_the_controller_is_alive_until_its_loop_is_stuck(harness: Harness) -> None:
    settings, liveness = ControllerSettings(), Liveness(steady_s=harness.clock.monotonic_s)
    alive, stands = list[bool](), asyncio.Event()

    async def next_period(period_s: float) -> None:
        alive.append(liveness.is_alive())
        harness.clock.advance(period_s)
        if len(alive) == 3:
            stands.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    assert not liveness.is_alive()
    lease = LeaseSettings(holder="only-controller", lease_s=3600.0)
    controller = harness.controller(settings=settings, sleep=next_period, lease=lease, liveness=liveness)
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await stands.wait()
    assert alive == [True] * 3
    longest_s = settings.listing_timeout_s + settings.period_s
    harness.clock.advance(longest_s)
    assert liveness.is_alive()  # one pass of the loop may take this long
    harness.clock.advance(ALLOWANCE * longest_s)
    assert not liveness.is_alive()
    running.cancel()
    await asyncio.wait([running])


async def test_a_target_listing_that_never_ends_times_out(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(**_query: object) -> AsyncIterator[Target]:
        await asyncio.Event().wait()
        yield (await harness.api.get_target("none")).document

    monkeypatch.setattr(harness.api, "iter_targets", never)
    assert not await harness.round(harness.controller(settings=ControllerSettings(listing_timeout_s=0.05)))
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="failed") == 1


async def test_an_unexpected_exception_on_one_target_does_not_affect_the_others(harness: Harness) -> None:
    broken, fine = app(B200=1), app(B200=1)

    async def defect(_request: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError

    broken.interruptions = [defect]
    await harness.register("broken", broken)
    await harness.register("fine", fine)
    controller = harness.controller()
    assert not await harness.round(controller)
    assert (await harness.status("fine")).phase is Phase.OBSERVED
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="failed") == 1
    await harness.round(controller)
    assert (await harness.status("broken")).phase is Phase.OBSERVED


async def test_nothing_is_written_while_the_api_is_unreachable(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    down = httpx.MockTransport(raise_connect_error)
    async with AsyncClient("http://localhost", transport=down) as api:
        assert not await harness.round(harness.controller(api=api))
    assert serve.requests == []
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="failed") == 1


async def test_nothing_is_written_while_the_freeze_cannot_be_read(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    async with AsyncClient(
        "http://localhost", token=TOKENS[TokenScope.ADMIN], transport=without_freeze(harness)
    ) as api:
        await harness.round(harness.controller(api=api))
    status = await harness.status("chat")
    assert (status.phase, status.message) == (Phase.FAILED, "GET /v1/freeze: 500 Internal Server Error")
    assert serve.writes == []


async def test_a_status_report_that_cannot_be_stored_fails_the_reconcile(harness: Harness) -> None:
    """The token may read but not report."""
    await harness.register("chat", app(B200=1))
    transport = harness.api._http._transport
    async with AsyncClient("http://localhost", token=TOKENS[TokenScope.READ], transport=transport) as api:
        assert not await harness.round(harness.controller(api=api))


async def test_a_target_deleted_during_a_reconcile_is_no_failure(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))

    async def delete_meanwhile(_request: httpx.Request) -> None:
        await harness.api.delete_target("chat", if_match=(await harness.api.get_target("chat")).etag)

    serve.interruptions = [delete_meanwhile]
    assert await harness.round(harness.controller())
    assert serve.writes == []


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("at_write", range(0, 6, 1 if SOAK else 3))
async def test_the_next_controller_continues_the_work_of_a_killed_one(
    harness: Harness, at_write: int, *, carried_out: bool
) -> None:
    """A kill at any write, right before or right after it takes effect, does not change the result."""
    serve = app(B200=1, L40S=0, L4=3)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2, "L40S": 2}), max_step=1)
    undisturbed = [("on-B200", 2), ("on-L40S", 1), ("on-L40S", 2), ("on-L4", 2), ("on-L4", 1), ("on-L4", 0)]
    await run_until_killed(harness, serve, at_write=at_write, carried_out=carried_out)
    assert serve.writes == undisturbed[: at_write + carried_out]

    serve.settle()
    successor = harness.controller()
    for _ in range(8):
        await harness.round(successor)
    assert serve.writes == undisturbed, "no write is lost and no write is repeated"
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def run_until_killed(harness: Harness, serve: ServeDouble, *, at_write: int, carried_out: bool) -> None:
    """Reconcile until the controller dies in a write, before it reads the response."""

    async def kill(request: httpx.Request) -> None:
        if request.method == "POST" and len(serve.writes) == at_write:
            if carried_out:
                await serve.answer(request)
            raise KilledError
        serve.interruptions.append(kill)

    async def reconcile_forever() -> None:
        controller = harness.controller()
        while True:
            await harness.round(controller)

    serve.interruptions.append(kill)
    with pytest.raises(KilledError):
        await reconcile_forever()


def without_freeze(harness: Harness) -> httpx.MockTransport:
    """The service, with an error for each read of the freeze."""

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/freeze":
            return httpx.Response(500)
        return await harness.api._http._transport.handle_async_request(request)

    return httpx.MockTransport(answer)


async def let_through(_request: httpx.Request) -> None:
    """Let the request pass."""


async def forever(_request: httpx.Request) -> None:
    await asyncio.Event().wait()


def raise_connect_error(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)
