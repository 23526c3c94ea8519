"""Only one of several controllers acts, and only while it certainly holds the lease."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.client import AsyncClient
from api.schemas.leases import Lease, LeaseClaim
from api.schemas.targets import Phase, TargetStatus
from api.schemas.tokens import TokenScope
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError
from deploy.common.leader_election import Leadership, LeaseRole, LeaseSettings, new_holder
from tests.deploy.controller.harness import Harness, app
from tests.testbed.service import TOKENS

pytestmark = pytest.mark.anyio
LEASE_S, RENEW_S = 15.0, 5.0
LONG_S = 1200.0


def leadership_of(
    harness: Harness, holder: str, *, steady_s: Callable[[], float] | None = None, lease_s: float = LEASE_S
) -> Leadership:
    clock = Clock(now=harness.clock.now, steady_s=steady_s or harness.clock.monotonic_s)
    settings = LeaseSettings(holder=holder, lease_s=lease_s, renew_s=RENEW_S)
    return Leadership(api=harness.api, settings=settings, clock=clock)


async def test_the_first_process_leads_and_the_second_follows(harness: Harness) -> None:
    first, second = leadership_of(harness, "a"), leadership_of(harness, "b")
    assert await first.renew() is LeaseRole.LEADER
    for _ in range(10):
        harness.clock.advance(RENEW_S)
        assert (await first.renew(), await second.renew()) == (LeaseRole.LEADER, LeaseRole.FOLLOWER)
    assert (first.term, second.term) == (1, None)


async def test_a_follower_takes_over_after_the_lease_of_a_dead_leader(harness: Harness) -> None:
    first, second = leadership_of(harness, "a"), leadership_of(harness, "b")
    await first.renew()
    await second.renew()
    stood = []
    for _ in range(4):
        harness.clock.advance(RENEW_S)
        stood.append((first.holds, await second.renew()))
    assert stood == [
        (True, LeaseRole.FOLLOWER),
        (True, LeaseRole.FOLLOWER),
        (False, LeaseRole.LEADER),  # the first stopped at 13.5 s, the second began at 15 s
        (False, LeaseRole.LEADER),
    ]
    assert (await first.renew(), second.term) == (LeaseRole.FOLLOWER, 2)


async def test_a_released_lease_is_taken_immediately(harness: Harness) -> None:
    first, second = leadership_of(harness, "a"), leadership_of(harness, "b")
    await first.renew()
    assert await second.renew() is LeaseRole.FOLLOWER
    await first.release()
    assert (first.holds, await second.renew()) == (False, LeaseRole.LEADER)
    assert await first.renew() is LeaseRole.FOLLOWER


async def test_releasing_a_lost_lease_does_not_affect_the_new_holder(harness: Harness) -> None:
    first, second = leadership_of(harness, "a"), leadership_of(harness, "b")
    await first.renew()
    await second.renew()
    harness.clock.advance(LEASE_S)
    assert await second.renew() is LeaseRole.LEADER
    await first.release()
    assert (await harness.api.get_lease("controller")).document.holder == "b"


async def test_a_restarted_process_is_a_new_holder(harness: Harness) -> None:
    assert new_holder() != new_holder()
    await leadership_of(harness, "a:1").renew()
    again = leadership_of(harness, "a:2")
    assert await again.renew() is LeaseRole.FOLLOWER
    harness.clock.advance(LEASE_S)
    assert await again.renew() is LeaseRole.LEADER


async def test_a_renewal_with_a_lost_response_keeps_the_lease(harness: Harness) -> None:
    first = leadership_of(harness, "a")
    await first.renew()
    renewed = await harness.api.get_lease("controller")
    await harness.api.replace_lease("controller", LeaseClaim(holder="a", lease_s=LEASE_S), if_match=renewed.etag)
    harness.clock.advance(RENEW_S)
    assert await first.renew() is LeaseRole.LEADER, "the 412 response does not end the lease: the holder is unchanged"
    harness.clock.advance(RENEW_S)
    assert (await first.renew(), first.term, first.left_s) == (LeaseRole.LEADER, 1, LEASE_S * 0.9)


async def test_an_operator_can_assign_the_lease_to_another_process(harness: Harness) -> None:
    first = leadership_of(harness, "a")
    await first.renew()
    held = await harness.api.get_lease("controller")
    await harness.api.replace_lease("controller", LeaseClaim(holder="b", lease_s=LEASE_S), if_match=held.etag)
    assert (await first.renew(), first.holds) == (LeaseRole.FOLLOWER, False), "at once, not a renewal later"


async def test_a_refused_renewal_ends_the_lease_even_when_the_holder_cannot_be_read(harness: Harness) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(412, json={"title": "no", "status": 412})
        raise httpx.ConnectError("refused", request=request)

    first = leadership_of(harness, "a")
    await first.renew()
    async with AsyncClient("http://api", transport=httpx.MockTransport(refuse)) as api:
        first._api = api
        assert (await first.renew(), first.left_s) == (LeaseRole.UNKNOWN, 0.0)


async def test_a_write_is_cancelled_when_the_lease_expires(harness: Harness) -> None:
    first = leadership_of(harness, "a")
    with pytest.raises(NotLeadingError):
        async with first.acting():
            raise AssertionError("the block must not run")
    await first.renew()
    harness.clock.advance(LEASE_S * 0.9 - 0.01)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(NotLeadingError, match="ended during a write"):
        async with first.acting():
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() - begun < 5.0


async def test_a_renewal_extends_the_deadline_of_a_write_in_progress(harness: Harness) -> None:
    first = leadership_of(harness, "a", lease_s=LONG_S)
    await first.renew()
    harness.clock.advance(LONG_S / 2)  # the rest of the lease is longer than any renewal takes in wall time
    async with first.acting():
        bound = next(iter(first._bounds))
        before_s = bound.when()
        assert await first.renew() is LeaseRole.LEADER
        after_s = bound.when()
    assert before_s is not None
    assert after_s is not None
    assert after_s - before_s > LONG_S / 3
    assert not first._bounds


async def test_a_timeout_of_the_write_itself_is_raised_as_timeout(harness: Harness) -> None:
    first = leadership_of(harness, "a")
    await first.renew()
    with pytest.raises(TimeoutError):
        async with first.acting(), asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_an_unreachable_service_keeps_the_leader_until_its_lease_expires(harness: Harness) -> None:
    def route(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    first = leadership_of(harness, "a")
    await first.renew()
    real, broken = harness.api, AsyncClient("http://api", transport=httpx.MockTransport(route))
    first._api = broken
    harness.clock.advance(RENEW_S)
    assert await first.renew() is LeaseRole.LEADER
    harness.clock.advance(RENEW_S + 4.0)
    assert (await first.renew(), first.role) == (LeaseRole.UNKNOWN, LeaseRole.UNKNOWN)
    first._api = real
    assert await first.renew() is LeaseRole.LEADER, "no other process took the lease"
    await broken.close()


async def test_only_the_leader_writes_and_reports(harness: Harness) -> None:
    serve = app(B200=1, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3}))
    leads = harness.controller(lease=LeaseSettings(holder="a"))
    follows = harness.controller(lease=LeaseSettings(holder="b"))
    assert await harness.round(leads, settle=False)
    for _ in range(3):
        assert await follows.reconcile()
    assert serve.writes == [("on-B200", 3)]
    assert harness.counted("fleetwright_controller_is_leader") == 0.0
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="ok") == 0.0
    reported = (await harness.status("chat")).observed_at
    harness.clock.advance(1.0)
    assert await follows.reconcile()
    assert (await harness.status("chat")).observed_at == reported
    await harness.round(follows)  # 6 s without a renewal: the lease still holds
    assert (await harness.status("chat")).observed_at == reported
    harness.clock.advance(LEASE_S)
    serve.settle()
    assert await follows.reconcile()
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_a_leader_that_loses_its_lease_during_a_read_writes_nothing(harness: Harness) -> None:
    serve = app(B200=0, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 1, "L4": 1}))
    controller = harness.controller(lease=LeaseSettings(holder="a"))

    async def slow(_request: httpx.Request) -> None:
        harness.clock.advance(LEASE_S)

    serve.interruptions = [slow]  # the first read of the target takes longer than the lease
    assert not await harness.round(controller, settle=False), "it must not report either"
    assert serve.writes == []
    assert await harness.round(controller, settle=False)
    assert serve.writes == [("on-B200", 1), ("on-L4", 1)]


async def test_a_report_is_cancelled_when_the_lease_expires(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve)
    controller = harness.controller(lease=LeaseSettings(holder="a"))

    async def slow(_request: httpx.Request) -> None:
        harness.clock.advance(LEASE_S * 0.9 - 0.01)

    async def stuck(_name: str, _status: TargetStatus) -> None:
        await asyncio.Event().wait()

    serve.interruptions = [slow]
    monkeypatch.setattr(harness.api, "report_target_status", stuck)
    async with asyncio.timeout(60.0):
        assert not await harness.round(controller)


@dataclass
class LeaseEndpoint:
    """A double of the lease endpoint with only its replacement rule; the property test runs random histories on it."""

    lease: Lease | None = None

    def answer(self, request: httpx.Request) -> httpx.Response:
        tag = f'"{self.lease.term}.{self.lease.beats}"' if self.lease is not None else None
        if request.method == "PUT":
            if request.headers.get("If-Match") != tag:
                return httpx.Response(412, json={"title": "no", "status": 412})
            claim = LeaseClaim.model_validate_json(request.content)
            same = self.lease is not None and self.lease.holder == claim.holder
            term, beats = (self.lease.term, self.lease.beats) if self.lease is not None else (0, 0)
            status = 200 if self.lease is not None else 201
            self.lease = Lease(
                name="controller",
                holder=claim.holder,
                lease_s=claim.lease_s,
                term=term if same else term + 1,
                beats=beats + 1 if same else 0,
            )
            tag = f'"{self.lease.term}.{self.lease.beats}"'
            return httpx.Response(status, content=self.lease.model_dump_json(), headers={"ETag": tag})
        if self.lease is None or tag is None:
            return httpx.Response(404, json={"title": "none", "status": 404})
        return httpx.Response(200, content=self.lease.model_dump_json(), headers={"ETag": tag})


MOVES = st.lists(
    st.tuples(st.sampled_from(["wait", "renew", "give"]), st.integers(0, 2), st.floats(0.1, 9.0)), max_size=40
)


@given(moves=MOVES, rates=st.lists(st.floats(0.96, 1.04), min_size=3, max_size=3))
def test_two_processes_never_lead_at_once_while_clock_drift_is_below_the_margin(
    moves: list[tuple[str, int, float]], rates: list[float]
) -> None:
    asyncio.run(_run_history(moves, rates))


async def _run_history(moves: list[tuple[str, int, float]], rates: list[float]) -> None:
    async with AsyncClient(
        "http://api", token=TOKENS[TokenScope.ADMIN], transport=httpx.MockTransport(LeaseEndpoint().answer)
    ) as client:
        own = [[0.0] for _ in rates]
        processes = [
            Leadership(
                api=client,
                settings=LeaseSettings(holder=f"p{number}", lease_s=LEASE_S, renew_s=RENEW_S),
                clock=Clock(steady_s=lambda mine=mine: mine[0]),  # type: ignore[misc] # bound early
            )
            for number, mine in enumerate(own)
        ]
        for action, index, duration_s in moves:
            if action == "wait":
                for mine, rate in zip(own, rates, strict=True):
                    mine[0] += rate * duration_s
            elif action == "renew":
                await processes[index].renew()
            else:
                await processes[index].release()
            assert sum(process.holds for process in processes) <= 1
