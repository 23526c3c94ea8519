"""One of several controllers acts, and only while it surely holds the lease."""

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
from api.schemas.tokens import Scope
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError
from deploy.common.leader_election import Leadership, LeaseRole, LeaseSettings, new_holder
from tests.deploy.controller.harness import Harness, app
from tests.testbed.service import TOKENS

pytestmark = pytest.mark.anyio
LEASE_S, RENEW_S = 15.0, 5.0
LONG_S = 1200.0


def of(
    harness: Harness, holder: str, *, steady_s: Callable[[], float] | None = None, lease_s: float = LEASE_S
) -> Leadership:
    clock = Clock(now=harness.clock.now, steady_s=steady_s or harness.clock.monotonic_s)
    settings = LeaseSettings(holder=holder, lease_s=lease_s, renew_s=RENEW_S)
    return Leadership(api=harness.api, settings=settings, clock=clock)


async def test_the_first_leads_and_the_second_waits(harness: Harness) -> None:
    first, second = of(harness, "a"), of(harness, "b")
    assert await first.renew() is LeaseRole.LEADER
    for _ in range(10):
        harness.clock.advance(RENEW_S)
        assert (await first.renew(), await second.renew()) == (LeaseRole.LEADER, LeaseRole.FOLLOWER)
    assert (first.term, second.term) == (1, None)


async def test_a_dead_leader_is_followed_after_its_lease(harness: Harness) -> None:
    first, second = of(harness, "a"), of(harness, "b")
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


async def test_what_is_given_back_is_had_at_once(harness: Harness) -> None:
    first, second = of(harness, "a"), of(harness, "b")
    await first.renew()
    assert await second.renew() is LeaseRole.FOLLOWER
    await first.release()
    assert (first.holds, await second.renew()) == (False, LeaseRole.LEADER)
    assert await first.renew() is LeaseRole.FOLLOWER


async def test_giving_back_what_another_took_takes_nothing_from_it(harness: Harness) -> None:
    first, second = of(harness, "a"), of(harness, "b")
    await first.renew()
    await second.renew()
    harness.clock.advance(LEASE_S)
    assert await second.renew() is LeaseRole.LEADER
    await first.release()
    assert (await harness.api.get_lease("controller")).document.holder == "b"


async def test_a_restart_is_another_process(harness: Harness) -> None:
    assert new_holder() != new_holder()
    await of(harness, "a:1").renew()
    again = of(harness, "a:2")
    assert await again.renew() is LeaseRole.FOLLOWER
    harness.clock.advance(LEASE_S)
    assert await again.renew() is LeaseRole.LEADER


async def test_a_renewal_whose_answer_was_lost_is_found_again(harness: Harness) -> None:
    first = of(harness, "a")
    await first.renew()
    renewed = await harness.api.get_lease("controller")
    await harness.api.replace_lease("controller", LeaseClaim(holder="a", lease_s=LEASE_S), if_match=renewed.etag)
    harness.clock.advance(RENEW_S)
    assert await first.renew() is LeaseRole.LEADER, "the refusal is no loss: the lease is still its own"
    harness.clock.advance(RENEW_S)
    assert (await first.renew(), first.term, first.left_s) == (LeaseRole.LEADER, 1, LEASE_S * 0.9)


async def test_an_operator_may_give_it_to_another(harness: Harness) -> None:
    first = of(harness, "a")
    await first.renew()
    held = await harness.api.get_lease("controller")
    await harness.api.replace_lease("controller", LeaseClaim(holder="b", lease_s=LEASE_S), if_match=held.etag)
    assert (await first.renew(), first.holds) == (LeaseRole.FOLLOWER, False), "at once, not a renewal later"


async def test_a_lease_found_taken_ends_at_once_even_when_nobody_says_whose_it_is(harness: Harness) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(412, json={"title": "no", "status": 412})
        raise httpx.ConnectError("refused", request=request)

    first = of(harness, "a")
    await first.renew()
    async with AsyncClient("http://api", transport=httpx.MockTransport(refuse)) as api:
        first._api = api
        assert (await first.renew(), first.left_s) == (LeaseRole.UNKNOWN, 0.0)


async def test_a_write_ends_with_the_lease(harness: Harness) -> None:
    first = of(harness, "a")
    with pytest.raises(NotLeadingError):
        async with first.acting():
            raise AssertionError("nothing may be done")
    await first.renew()
    harness.clock.advance(LEASE_S * 0.9 - 0.01)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(NotLeadingError, match="ended during a write"):
        async with first.acting():
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() - begun < 5.0


async def test_a_renewal_gives_what_is_under_way_its_time_too(harness: Harness) -> None:
    first = of(harness, "a", lease_s=LONG_S)
    await first.renew()
    harness.clock.advance(LONG_S / 2)  # what is left is more than a renewal ever takes on the wall's clock
    async with first.acting():
        bound = next(iter(first._bounds))
        before_s = bound.when()
        assert await first.renew() is LeaseRole.LEADER
        after_s = bound.when()
    assert before_s is not None
    assert after_s is not None
    assert after_s - before_s > LONG_S / 3
    assert not first._bounds


async def test_a_timeout_of_the_write_itself_stays_one(harness: Harness) -> None:
    first = of(harness, "a")
    await first.renew()
    with pytest.raises(TimeoutError):
        async with first.acting(), asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_without_an_answer_it_leads_until_its_time_is_up(harness: Harness) -> None:
    def route(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    first = of(harness, "a")
    await first.renew()
    real, broken = harness.api, AsyncClient("http://api", transport=httpx.MockTransport(route))
    first._api = broken
    harness.clock.advance(RENEW_S)
    assert await first.renew() is LeaseRole.LEADER
    harness.clock.advance(RENEW_S + 4.0)
    assert (await first.renew(), first.role) == (LeaseRole.UNKNOWN, LeaseRole.UNKNOWN)
    first._api = real
    assert await first.renew() is LeaseRole.LEADER, "nobody took it in the meantime"
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
    await harness.round(follows)  # 6 s without a renewal: not yet
    assert (await harness.status("chat")).observed_at == reported
    harness.clock.advance(LEASE_S)
    serve.settle()
    assert await follows.reconcile()
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_a_leader_that_loses_its_lease_between_two_writes_stops(harness: Harness) -> None:
    serve = app(B200=0, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 1, "L4": 1}))
    controller = harness.controller(lease=LeaseSettings(holder="a"))

    async def slow(_request: httpx.Request) -> None:
        harness.clock.advance(LEASE_S)

    serve.interruptions = [slow]  # the first reading of the target takes longer than the lease
    assert not await harness.round(controller, settle=False), "it may not even report"
    assert serve.writes == []
    assert await harness.round(controller, settle=False)
    assert serve.writes == [("on-B200", 1), ("on-L4", 1)]


async def test_a_report_ends_with_the_lease_too(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
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
class Shelf:
    """The service's rule of replacing a lease, and nothing else: whole histories are played against it."""

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
def test_never_do_two_act_while_clocks_differ_by_less_than_the_margin(
    moves: list[tuple[str, int, float]], rates: list[float]
) -> None:
    asyncio.run(_play(moves, rates))


async def _play(moves: list[tuple[str, int, float]], rates: list[float]) -> None:
    async with AsyncClient(
        "http://api", token=TOKENS[Scope.ADMIN], transport=httpx.MockTransport(Shelf().answer)
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
        for what, who, much_s in moves:
            if what == "wait":
                for mine, rate in zip(own, rates, strict=True):
                    mine[0] += rate * much_s
            elif what == "renew":
                await processes[who].renew()
            else:
                await processes[who].release()
            assert sum(process.holds for process in processes) <= 1
