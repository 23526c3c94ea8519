"""Budgets fetched from the API every few seconds, beside the guard's control loop.

A version is accepted or rejected once.  If the API reports no budget (withdrawn, expired), the fetched budget ends now.
If the API does not respond, the budget expires by itself, and the row is degraded.

The validity is computed by the API's own clock, from its responses, so clocks need not agree.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx
import structlog

from api.client import ApiError, AsyncClient, NotFoundError, Retries, Timeouts
from api.client.calls import Call, Versioned
from api.client.operations import get_power_budget
from api.client.tokens import token_from_file
from api.schemas.power import StoredBudget
from deploy.common.clock import Clock
from deploy.power_guard.config import BudgetsFrom
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.metrics import FetchResult
from fleet.documents import RuleError
from power.guard import BudgetRequest, Timetable
from power.guard.budgets import Entry

log = structlog.get_logger()

TIMEOUTS = Timeouts(connect_s=2.0, read_s=5.0, write_s=5.0, pool_s=5.0)
DATE_LAG = timedelta(
    seconds=3
)  # HTTP dates are whole seconds; a server makes a new one once a second, a busy one later


class DatedBudget(NamedTuple):
    """A budget of the API, and the time of the response by the API's clock."""

    found: Versioned[StoredBudget]
    at: datetime | None


class BudgetFetcher:
    def __init__(self, *, api: AsyncClient, loop: GuardLoop, clock: Clock | None = None) -> None:
        self._api, self._loop = api, loop
        self._clock = clock or Clock()
        self._call = _dated(get_power_budget(loop.config.row))
        self._etag: str | None = None  # of the version that was taken or refused
        self._taken: Timetable | None = None
        self._reachable = True
        for result in FetchResult:
            loop.metrics.budget_fetched(result, times=0)

    async def run(self, *, every_s: float) -> None:
        """Fetch forever; no error ends this loop."""
        while True:
            try:
                await self.fetch()
            except Exception:
                log.exception("budget_fetch_error", row=self._loop.config.row)
                self._loop.metrics.budget_fetched(FetchResult.FAILED)
            await self._clock.sleep(every_s)

    async def fetch(self) -> None:
        """Fetch once, and set a new version as the budget."""
        sent_s = self._clock.steady_s()
        try:
            response_ = await self._api.send(self._call)
        except NotFoundError:
            self._fetched(FetchResult.NONE)
            self._end(None, reason="withdrawn")
            return
        except ApiError as error:
            self._failed(error)
            return
        left_s = self._left_s(response_) - (self._clock.steady_s() - sent_s)
        self._fetched(FetchResult.FOUND)
        if left_s <= 0:
            self._end(response_.found.etag, reason="expired")
        elif response_.found.etag != self._etag:
            self._set_budget(response_.found, valid_s=left_s)

    def _left_s(self, response_: DatedBudget) -> float:
        """Return the minimum time until the budget expires."""
        now = self._clock.now() if response_.at is None else response_.at + DATE_LAG
        return (response_.found.document.budget.expires_at - now).total_seconds()

    def _set_budget(self, found: Versioned[StoredBudget], *, valid_s: float) -> None:
        self._etag = found.etag
        document = found.document
        request = BudgetRequest(
            domain=document.domain, limits=(Entry(limit_w=document.budget.limit_w),), valid_s=valid_s
        )
        try:
            self._taken = self._loop.set_budget(request)
        except RuleError as error:
            log.warning("budget_refused", row=self._loop.config.row, version=document.version, reason=str(error))

    def _end(self, etag: str | None, *, reason: str) -> None:
        """End only a budget from this source, because another source may have set one since."""
        self._etag = etag
        if self._taken is not None and self._loop.budget is self._taken:
            log.warning("budget_ended", row=self._loop.config.row, reason=reason)
            self._loop.withdraw()
        self._taken = None

    def _fetched(self, result: FetchResult) -> None:
        self._loop.metrics.budget_fetched(result)
        if not self._reachable:
            log.info("budget_fetch_recovered", row=self._loop.config.row)
        self._reachable = True

    def _failed(self, error: ApiError) -> None:
        self._loop.metrics.budget_fetched(FetchResult.FAILED)
        if self._reachable:  # once, not every few seconds
            log.warning("budget_fetch_failed", row=self._loop.config.row, reason=str(error))
        self._reachable = False


@asynccontextmanager
async def fetching_budgets(document: BudgetsFrom, *, loop: GuardLoop) -> AsyncIterator[None]:
    token = token_from_file(document.token_file) if document.token_file else None
    async with AsyncClient(document.url, token=token, timeouts=TIMEOUTS, retries=Retries(attempts=1)) as api:
        source = BudgetFetcher(api=api, loop=loop)
        task = asyncio.create_task(source.run(every_s=document.every_s))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _dated(call: Call[Versioned[StoredBudget]]) -> Call[DatedBudget]:
    """Return the same call with the time of its response."""

    def read(response: httpx.Response) -> DatedBudget:
        return DatedBudget(call.read(response), _date_of(response))

    return Call(method=call.method, path=call.path, read=read, retried=False)


def _date_of(response: httpx.Response) -> datetime | None:
    with suppress(ValueError):
        return parsedate_to_datetime(response.headers.get("date", ""))
    return None
