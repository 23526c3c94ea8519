"""Solves requests in threads: a solver occupies a core for as long as it runs."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import anyio
from anyio import to_thread

from api.server.problems import ProblemError
from fleet.documents import RuleError, dotted
from fleet.errors import DocumentError, Problem

ResultT = TypeVar("ResultT")

WAITING_MAX = 32  # each keeps its request in memory
RETRY_AFTER_S = "5"


class SolverPool:
    """Solves a few requests at a time; the others wait without blocking the event loop."""

    def __init__(self, *, concurrency: int) -> None:
        self._limiter = anyio.CapacityLimiter(concurrency)

    async def solve(self, work: Callable[[], ResultT]) -> ResultT:
        """Do the work of a request in a thread; 503 when too many requests wait."""
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= WAITING_MAX:
            raise ProblemError(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                kind="planning-busy",
                detail=f"{waiting} requests are waiting already",
                headers={"Retry-After": RETRY_AFTER_S},
            )
        return await self.wait_for(work)

    async def wait_for(self, work: Callable[[], ResultT]) -> ResultT:
        """Do work in a thread.  An error that appears only there is a defect of the request, with its field."""
        try:
            return await to_thread.run_sync(work, limiter=self._limiter)
        except RuleError as error:
            problems = [Problem(dotted(path), message) for path, message in error.violations]
            raise DocumentError(name="request", problems=problems) from error
