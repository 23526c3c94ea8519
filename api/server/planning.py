"""Planning requests, solved beside the event loop: the solver takes a core for as long as it needs."""

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus

import anyio
from anyio import to_thread

from api.server.problems import ProblemError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import PriceSheet
from planner import plan
from planner.answer import Plan
from planner.request import PlanRequest

WAITING_MAX = 32  # each holds its request in memory; who comes later had better come again
RETRY_AFTER_S = "5"


class PlanningDesk:
    """Takes a few requests at a time; the others wait their turn without blocking anybody."""

    def __init__(self, *, concurrency: int, now: Callable[[], datetime], monotonic_s: Callable[[], float]) -> None:
        self._limiter = anyio.CapacityLimiter(concurrency)
        self._now = now
        self._monotonic_s = monotonic_s

    def _refuse_when_busy(self) -> None:
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= WAITING_MAX:
            raise ProblemError(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                kind="planning-busy",
                detail=f"{waiting} plan requests are waiting already",
                headers={"Retry-After": RETRY_AFTER_S},
            )

    async def solve(
        self, request: PlanRequest, *, gpus: GpuCatalogue, models: ModelCatalogue, prices: PriceSheet
    ) -> Plan:
        """The answer to a request, from the catalogues in force; 503 when too many are waiting already."""
        self._refuse_when_busy()

        def work() -> Plan:
            return plan(request, gpus=gpus, models=models, prices=prices, now=self._now(), clock_s=self._monotonic_s)

        return await to_thread.run_sync(work, limiter=self._limiter)
