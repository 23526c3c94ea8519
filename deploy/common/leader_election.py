"""Leader election by a lease in the API: only the holder acts, and only while it certainly holds the lease.

    follower   polls every `renew_s`; takes a lease that stayed unchanged for its `lease_s` by the follower's own clock
    leader     renews every `renew_s`; acts until `sent + lease_s (1 - MARGIN)` of the last granted renewal

`sent` is when the renewal was sent, not when its response arrived, so the holder stops before any candidate takes the
lease.  A renewal whose response was lost may have been granted: the next poll finds this process as the holder.  No
clocks of two machines are compared; `MARGIN` covers different clock rates.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import structlog

from api.client import ApiError, AsyncClient, NotFoundError, PreconditionFailedError
from api.client.calls import Versioned
from api.schemas.leases import CONTROLLER_LEASE, Lease, LeaseClaim, LeaseTerm
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError

log = structlog.get_logger()

MARGIN = 0.1  # of the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    name: str = CONTROLLER_LEASE
    holder: str
    lease_s: float = 15.0
    renew_s: float = 5.0


def new_holder() -> str:
    """Return a name that is unique to this process and shows where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class LeaseRole(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"  # another process leads
    UNKNOWN = "unknown"  # the API did not respond


@dataclass(frozen=True, slots=True)
class _Observed:
    lease: Versioned[Lease]
    at_s: float


class Leadership:
    """Acquires, renews and releases one lease for this process."""

    def __init__(self, *, api: AsyncClient, settings: LeaseSettings, clock: Clock) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._observed: _Observed | None = None
        self._until_s = float("-inf")
        self._api_reachable = False
        self._role = LeaseRole.UNKNOWN  # as last logged
        self._since: datetime | None = None
        self.was_requested = False
        self._bounds: set[asyncio.Timeout] = set()  # of the blocks of `acting`

    @property
    def left_s(self) -> float:
        """Return the time for which this process may still act; 0 when it may not."""
        return max(0.0, self._until_s - self._clock.steady_s())

    @property
    def holds(self) -> bool:
        return self.left_s > 0.0

    @property
    def role(self) -> LeaseRole:
        if self.holds:
            return LeaseRole.LEADER
        return LeaseRole.FOLLOWER if self._api_reachable else LeaseRole.UNKNOWN

    @property
    def since(self) -> datetime | None:
        return self._since if self.holds else None

    @property
    def term(self) -> int | None:
        return self._observed.lease.document.term if self.holds and self._observed is not None else None

    @property
    def held(self) -> LeaseTerm | None:
        """Return the lease and term to send with reports; None when the lease is not held."""
        return LeaseTerm(self._settings.name, self.term) if self.term is not None else None

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """Yield a block that ends with the lease at the latest; NotLeadingError where the lease is not held or is lost.

        A granted renewal extends the block, so it may take longer than one lease.
        """
        if not self.holds:
            raise NotLeadingError("another controller leads, or the API does not respond")
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
            raise NotLeadingError("the lease ended during a write; the next leader observes its effect") from error

    async def run(self) -> None:
        """Hold the lease or wait for it, until cancelled; then release it."""
        try:
            while True:
                await self.renew()
                await self._clock.sleep(self._settings.renew_s)
        finally:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(self._settings.renew_s):
                    await self.release()

    async def renew(self) -> LeaseRole:
        """Acquire the lease if it is free, or renew it."""
        try:
            async with asyncio.timeout(self._settings.lease_s):
                await self._renew()
            self._api_reachable = True
        except (ApiError, TimeoutError) as error:
            self._api_reachable = False
            log.warning("lease_not_renewed", lease=self._settings.name, reason=str(error) or "no response")
        self.was_requested = True
        self._log_role()
        return self.role

    async def wait(self) -> bool:
        """Acquire the lease once its last holder has certainly stopped; return false when another process renews it."""
        given_up_s = self._clock.steady_s() + self._settings.lease_s + self._settings.renew_s
        while await self.renew() is not LeaseRole.LEADER and self._clock.steady_s() < given_up_s:
            await self._clock.sleep(1.0)
        return self.holds

    async def release(self) -> None:
        """Release the lease, so that another process leads at once."""
        observed, self._until_s = self._observed, float("-inf")
        if observed is not None and observed.lease.document.holder == self._settings.holder:
            self._observed = None
            with suppress(PreconditionFailedError):
                await self._api.replace_lease(
                    self._settings.name,
                    LeaseClaim(holder=None, lease_s=self._settings.lease_s),
                    if_match=observed.lease.etag,
                )
        self._log_role()

    async def _renew(self) -> None:
        observed = self._observed
        if observed is None or not self._may_take(observed):
            observed = await self._poll()
            if observed is not None and not self._may_take(observed):
                return
        if await self._claim(observed):
            return
        # Another process was faster, or this process's last claim was granted after all.
        observed = await self._poll()
        if observed is not None and observed.lease.document.holder == self._settings.holder:
            await self._claim(observed)

    async def _poll(self) -> _Observed | None:
        """Read the lease; the time of its first observation stays while it does not change."""
        try:
            current = await self._api.get_lease(self._settings.name)
        except NotFoundError:
            self._observed = None
            return None
        if current.document.holder != self._settings.holder:
            self._until_s = float("-inf")  # an operator may reassign it early
        if self._observed is None or self._observed.lease.etag != current.etag:
            self._observed = _Observed(current, self._clock.steady_s())
        return self._observed

    def _may_take(self, observed: _Observed) -> bool:
        lease = observed.lease.document
        waited_s = self._clock.steady_s() - observed.at_s
        return lease.holder in {None, self._settings.holder} or waited_s >= lease.lease_s

    async def _claim(self, observed: _Observed | None) -> bool:
        claim = LeaseClaim(holder=self._settings.holder, lease_s=self._settings.lease_s)
        sent_s = self._clock.steady_s()
        try:
            if observed is None:
                granted = await self._api.create_lease(self._settings.name, claim)
            else:
                granted = await self._api.replace_lease(self._settings.name, claim, if_match=observed.lease.etag)
        except PreconditionFailedError:
            # No write starts before a poll has found this process as the holder.
            self._observed, self._until_s = None, float("-inf")
            return False
        self._observed = _Observed(granted, self._clock.steady_s())
        self._until_s = sent_s + self._settings.lease_s * (1.0 - MARGIN)
        for bound in self._bounds:
            if not bound.expired():
                bound.reschedule(asyncio.get_running_loop().time() + self.left_s)
        return True

    def _log_role(self) -> None:
        if self.role is not self._role:
            self._role = self.role
            self._since = self._clock.now() if self.holds else None
            log.info("leader_election", lease=self._settings.name, role=self._role.value, term=self.term)
