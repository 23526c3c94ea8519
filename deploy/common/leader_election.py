"""One of several processes acts: the one that holds the lease, and only while it surely does.

    follower   looks every `renew_s`; the same lease seen for `lease_s` of its holder by our own clock: takes it
    leader     renews every `renew_s`; acts until `sent + lease_s (1 - MARGIN)` of the last renewal that was granted

`sent` is when the renewal left, not when its answer came, so the holder's time ends before any candidate's wait does.
A renewal whose answer was lost may have been granted: the next look finds our own name there and goes on.  Nothing
compares two machines' clocks; `MARGIN` covers that one runs faster than the other.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

import structlog

from api.client import ApiError, AsyncClient, NotFoundError, PreconditionFailedError
from api.client.calls import Versioned
from api.schemas.leases import Lease, LeaseClaim
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError

log = structlog.get_logger()

MARGIN = 0.1  # of the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Who asks for which lease, and how often it is renewed."""

    name: str = "controller"
    holder: str
    lease_s: float = 15.0
    renew_s: float = 5.0


def new_holder() -> str:
    """A name that no other process has, and that tells people where to look."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class Standing(StrEnum):
    """What this process is."""

    LEADS = "leads"
    FOLLOWS = "follows"  # another one leads
    UNKNOWN = "unknown"  # the API did not say


@dataclass(frozen=True, slots=True)
class _Sight:
    """A lease as it was first seen."""

    seen: Versioned[Lease]
    at_s: float


class Leadership:
    """One process's share in a lease."""

    def __init__(self, *, api: AsyncClient, settings: LeaseSettings, clock: Clock) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._sight: _Sight | None = None
        self._until_s = float("-inf")
        self._answered = False
        self._told = Standing.UNKNOWN
        self._bounds: set[asyncio.Timeout] = set()  # of what is being done

    @property
    def left_s(self) -> float:
        """For how long this process may still act; 0 when it may not."""
        return max(0.0, self._until_s - self._clock.steady_s())

    @property
    def holds(self) -> bool:
        """Whether this process may act now."""
        return self.left_s > 0.0

    @property
    def standing(self) -> Standing:
        """What this process is, as of the last renewal."""
        if self.holds:
            return Standing.LEADS
        return Standing.FOLLOWS if self._answered else Standing.UNKNOWN

    @property
    def term(self) -> int | None:
        """The term in which this process leads."""
        return self._sight.seen.document.term if self.holds and self._sight is not None else None

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """A block that ends with the lease at the latest; NotLeadingError when it is or becomes another's to act.

        Renewals that are granted meanwhile are time for the block too: what takes longer than a lease can be done.
        """
        if not self.holds:
            raise NotLeadingError("another controller leads, or the API cannot say")
        bound = asyncio.timeout(self.left_s)
        try:
            async with bound:
                self._bounds.add(bound)
                try:
                    yield
                finally:
                    self._bounds.discard(bound)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise NotLeadingError("the lease ended during a write; the next leader looks at what came of it") from error

    async def run(self) -> None:
        """Hold the lease, or wait for it, until cancelled; then give it back."""
        try:
            while True:
                await self.renew()
                await self._clock.sleep(self._settings.renew_s)
        finally:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(self._settings.renew_s):
                    await self.give_back()

    async def renew(self) -> Standing:
        """Take or keep the lease if it may be had."""
        try:
            async with asyncio.timeout(self._settings.lease_s):
                await self._renew()
            self._answered = True
        except (ApiError, TimeoutError) as error:
            self._answered = False
            log.warning("lease_not_renewed", lease=self._settings.name, reason=str(error) or "no answer")
        self._tell()
        return self.standing

    async def wait(self) -> bool:
        """Take the lease once its last holder is surely gone; false when another one renews it."""
        given_up_s = self._clock.steady_s() + self._settings.lease_s + self._settings.renew_s
        while await self.renew() is not Standing.LEADS and self._clock.steady_s() < given_up_s:
            await self._clock.sleep(1.0)
        return self.holds

    async def give_back(self) -> None:
        """Let the next one lead at once."""
        sight, self._until_s = self._sight, float("-inf")
        if sight is not None and sight.seen.document.holder == self._settings.holder:
            self._sight = None
            with suppress(PreconditionFailedError):
                await self._api.replace_lease(
                    self._settings.name,
                    LeaseClaim(holder=None, lease_s=self._settings.lease_s),
                    if_match=sight.seen.etag,
                )
        self._tell()

    async def _renew(self) -> None:
        sight = self._sight
        if sight is None or not self._may_take(sight):
            sight = await self._look()
            if sight is not None and not self._may_take(sight):
                return
        if await self._claim(sight):
            return
        # Somebody was quicker, or our own last claim came through after all.
        sight = await self._look()
        if sight is not None and sight.seen.document.holder == self._settings.holder:
            await self._claim(sight)

    async def _look(self) -> _Sight | None:
        """What is there now; the moment since which it has been there is kept while it does not change."""
        try:
            seen = await self._api.get_lease(self._settings.name)
        except NotFoundError:
            self._sight = None
            return None
        if seen.document.holder != self._settings.holder:
            self._until_s = float("-inf")  # an operator may give it to another before its time
        if self._sight is None or self._sight.seen.etag != seen.etag:
            self._sight = _Sight(seen, self._clock.steady_s())
        return self._sight

    def _may_take(self, sight: _Sight) -> bool:
        lease = sight.seen.document
        waited_s = self._clock.steady_s() - sight.at_s
        return lease.holder in {None, self._settings.holder} or waited_s >= lease.lease_s

    async def _claim(self, sight: _Sight | None) -> bool:
        claim = LeaseClaim(holder=self._settings.holder, lease_s=self._settings.lease_s)
        sent_s = self._clock.steady_s()
        try:
            if sight is None:
                granted = await self._api.create_lease(self._settings.name, claim)
            else:
                granted = await self._api.replace_lease(self._settings.name, claim, if_match=sight.seen.etag)
        except PreconditionFailedError:
            # Nothing more is begun before a look has found our own name there.
            self._sight, self._until_s = None, float("-inf")
            return False
        self._sight = _Sight(granted, self._clock.steady_s())
        self._until_s = sent_s + self._settings.lease_s * (1.0 - MARGIN)
        for bound in self._bounds:
            if not bound.expired():
                bound.reschedule(asyncio.get_running_loop().time() + self.left_s)
        return True

    def _tell(self) -> None:
        if self.standing is not self._told:
            self._told = self.standing
            log.info("leadership", lease=self._settings.name, standing=self._told.value, term=self.term)
