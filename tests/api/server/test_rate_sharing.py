"""Replicas share one rate limit by a table, with a round per second."""

from collections.abc import AsyncIterator

import pytest

from api.schemas.tokens import TokenScope
from api.server.limits import RateLimiter
from api.server.problems import ProblemError
from api.server.rate_sharing import RateSharing
from api.store import Store
from tests.testbed.service import RunningService, SteppedClock

pytestmark = pytest.mark.anyio
PER_S, BURST, SECONDS = 100.0, 400, 10
ONE_LIMIT = PER_S * SECONDS + BURST


class Replica:
    def __init__(self, store: Store, clock: SteppedClock) -> None:
        self.limiter = RateLimiter(per_s=PER_S, burst=BURST, monotonic_s=clock.monotonic_s)
        self.sharing = RateSharing(store=store, limiter=self.limiter, now=clock.now)

    def granted(self, caller: str, requests: int) -> int:
        return sum(self._grants(caller) for _ in range(requests))

    def _grants(self, caller: str) -> bool:
        try:
            self.limiter.spend(caller)
        except ProblemError:
            return False
        return True


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    yield store
    await store.close()


async def replicas(store: Store, clock: SteppedClock, count: int) -> list[Replica]:
    found = [Replica(store, clock) for _ in range(count)]
    for replica in found:
        await replica.sharing.share()
    return found


async def run(found: list[Replica], clock: SteppedClock, caller: str, *, seconds: int, requests_per_tick: int) -> int:
    """Grants of all replicas; each second has ten ticks, and a round at its end."""
    granted = 0
    for _second in range(seconds):
        for _tick in range(10):
            granted += sum(replica.granted(caller, requests_per_tick) for replica in found)
            clock.advance(0.1)
        for replica in found:
            await replica.sharing.share()
    return granted


@pytest.mark.parametrize("count", [2, 3])
async def test_replicas_together_grant_about_one_limit(store: Store, count: int) -> None:
    clock = SteppedClock()
    found = await replicas(store, clock, count)
    # Each replica may grant its burst before the first round.
    granted = await run(found, clock, "token:a", seconds=SECONDS, requests_per_tick=100)
    assert ONE_LIMIT * 0.95 <= granted <= max(ONE_LIMIT * 1.15, count * (BURST + PER_S))
    later = await run(found, clock, "token:a", seconds=60, requests_per_tick=100)
    assert granted + later == pytest.approx(PER_S * 70 + BURST, rel=0.05)


async def test_a_caller_below_the_limit_is_never_refused(store: Store) -> None:
    clock = SteppedClock()
    found = await replicas(store, clock, 2)
    granted = await run(found, clock, "token:a", seconds=30, requests_per_tick=4)
    assert granted == 30 * 10 * 4 * 2


async def test_a_caller_that_was_idle_starts_anew(store: Store) -> None:
    clock = SteppedClock()
    one, other = await replicas(store, clock, 2)
    for _ in range(3):
        assert one.granted("token:a", BURST + 50) == BURST
        await one.sharing.share()
        await other.sharing.share()
        assert other.granted("token:a", 50) == 0, "the burst was used at the other replica"
        clock.advance(1800.0)


async def test_a_new_replica_does_not_charge_what_was_granted_before_its_start(store: Store) -> None:
    clock = SteppedClock()
    (one,) = await replicas(store, clock, 1)
    one.granted("token:a", BURST)
    await one.sharing.share()
    (late,) = await replicas(store, clock, 1)
    assert late.granted("token:a", 10) == 10


async def test_old_rows_are_deleted(store: Store) -> None:
    clock = SteppedClock()
    one, other = await replicas(store, clock, 2)
    one.granted("token:a", BURST)
    await one.sharing.share()
    clock.advance(3600.0)
    for _ in range(60):
        await other.sharing.share()
    async with store.reading() as tx:
        assert await tx.rates.of_others("nobody", since=SteppedClock().now()) == []


async def test_refusals_are_counted_by_reason(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as stranger, sqlite_service.client(TokenScope.READ) as reader:
        await stranger.get("/v1/gpus")
        await reader.get("/v1/tokens")
        await reader.get("/v1/audit")
        lines = (await reader.get("/metrics")).text.splitlines()
    assert 'fleetwright_refused_requests_total{reason="unauthorized"} 1.0' in lines
    assert 'fleetwright_refused_requests_total{reason="forbidden"} 2.0' in lines
    assert 'fleetwright_refused_requests_total{reason="rate-limited"} 0.0' in lines
