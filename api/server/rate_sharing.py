"""Shares the rate limit between replicas: once a second each publishes what it granted, and reads what others did.

A request never waits for this.  Replicas overdraw by what they grant within one round at most, and pay it back, because
each charges its own buckets with the grants of the others.  Without the database each replica limits alone.
"""

import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from api.server.limits import RateLimiter
from api.store import Store, StoreError

ROUND_S: Final = 1.0
READ_FOR: Final = timedelta(seconds=60)  # newer rows; also how far the clocks of replicas may differ
KEPT_S: Final = 600.0
ROUNDS_PER_CLEANUP: Final = 60

log = structlog.get_logger(__name__)


class RateSharing:
    def __init__(self, *, store: Store, limiter: RateLimiter, now: Callable[[], datetime]) -> None:
        self._store, self._limiter, self._now = store, limiter, now
        self._replica = secrets.token_hex(8)
        self._seen: dict[tuple[str, str], tuple[float, datetime]] = {}  # by caller and replica: spent, when
        self._rounds = 0
        self._fails = False

    async def run(self, *, stopped_within: Callable[[float], Awaitable[bool]]) -> None:
        while not await stopped_within(ROUND_S):
            try:
                await self.share()
            except StoreError as error:
                if not self._fails:
                    log.warning("rate_limit_not_shared", reason=str(error))
                self._fails = True
            else:
                self._fails = False

    async def share(self) -> None:
        """Do one round."""
        now, usage = self._now(), self._limiter.take_usage()
        mine = {(caller, f"{self._replica}.{period}"): spent for (caller, period), spent in usage.items()}
        async with self._store.transaction() if mine else self._store.reading() as tx:
            if mine:
                await tx.rates.put(mine, at=now)
            others = await tx.rates.of_others(self._replica, since=now - READ_FOR)
        for each in others:
            known, _at = self._seen.get((each.caller, each.replica), (0.0 if self._rounds else each.spent, now))
            if each.spent > known:
                self._limiter.charge(each.caller, each.spent - known)
            self._seen[each.caller, each.replica] = (each.spent, now)
        await self._clean_up(now)
        self._rounds += 1

    async def _clean_up(self, now: datetime) -> None:
        if self._rounds % ROUNDS_PER_CLEANUP:
            return
        kept = timedelta(seconds=max(KEPT_S, 2.0 * self._limiter.refill_s))
        self._seen = {key: found for key, found in self._seen.items() if found[1] > now - 2 * kept}
        if self._rounds:
            async with self._store.transaction() as tx:
                await tx.rates.forget(before=now - kept)
