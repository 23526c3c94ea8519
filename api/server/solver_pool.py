"""Solves requests in threads: a solver occupies a core for as long as it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from importlib.metadata import version

import anyio
from anyio import to_thread

from api.schemas.fault_paths import PathsAnswer, PathsRequest
from api.schemas.faults import BundleReplay, FaultQuestion
from api.schemas.power import CapPlanRequest
from api.server import bundles
from api.server.problems import ProblemError
from faults.diagnosis import Diagnosis
from faults.simulator import Score, simulate
from fleet.documents import RuleError, dotted
from fleet.errors import DocumentError, Problem
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import PriceSheet
from fleet.topology import Topology
from placement.document import Placement
from placement.formats.engine_writers import Engine, export_placement
from placement.request import PlacementRequest
from planner import plan
from planner.answer import Plan
from planner.request import PlanRequest
from power.caps import DEFAULT_LIMITS, CapPlan, plan_caps
from power.tree import PowerTree
from power.whatif.request import RowRequest
from power.whatif.response import RowResponse
from power.workload import Sources

WAITING_MAX = 32  # each keeps its request in memory
RETRY_AFTER_S = "5"


class SolverPool:
    """Solves a few requests at a time; the others wait without blocking the event loop."""

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
                detail=f"{waiting} requests are waiting already",
                headers={"Retry-After": RETRY_AFTER_S},
            )

    async def place(self, request: PlacementRequest, *, models: ModelCatalogue) -> Placement:
        """Place experts with the catalogue in force; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> Placement:
            from placement.pipeline import place  # noqa: PLC0415 - loads compiled code, which not every service needs

            with _named_fields():
                problem = request.problem(None if request.model is None else models.get(request.model))
                return place(problem, version=version("fleetwright"), clock_s=self._monotonic_s)

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def export(self, answer: str, engine: Engine) -> str:
        """Return a stored placement as the file that an engine loads."""

        def work() -> str:
            with _named_fields():
                return export_placement(Placement.model_validate_json(answer), engine)

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def simulate(self, question: RowRequest, sources: Sources) -> RowResponse:
        """Simulate a row; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> RowResponse:
            from power.whatif.run import run_whatif  # noqa: PLC0415 - loads compiled code, which not every service needs

            with _named_fields():
                return run_whatif(question, clock_s=self._monotonic_s, sources=sources).response

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def check_bundle(self, text: str) -> bundles.Checked:
        """Return the content of a valid bundle in base64; 503 when too many requests wait."""
        self._refuse_when_busy()
        return await to_thread.run_sync(bundles.checked, text, limiter=self._limiter)

    async def replay(self, packed: bytes, *, diagnosis_id: str, diagnosis: Diagnosis) -> BundleReplay:
        """Replay a bundle; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> BundleReplay:
            return bundles.replayed(packed, diagnosis_id=diagnosis_id, diagnosis=diagnosis, clock_s=self._monotonic_s)

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def simulate_faults(self, question: FaultQuestion) -> Score:
        """Score the detectors on a simulated cluster; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> Score:
            with _named_fields():
                return simulate(
                    ranks=question.ranks,
                    hours=question.hours,
                    scenario=question.scenario.value,
                    seed=question.seed,
                    clock_s=self._monotonic_s,
                )

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def plan_paths(self, request: PathsRequest, *, topology: Topology) -> PathsAnswer:
        """Assign a cable to each connection; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> PathsAnswer:
            from api.server.fault_paths import paths_of  # noqa: PLC0415 - loads a solver, which not every service needs

            with _named_fields():
                return paths_of(request, topology)

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def plan_caps(self, request: CapPlanRequest, *, tree: PowerTree) -> CapPlan:
        """Plan clocks and budgets for a power tree; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> CapPlan:
            limits = replace(DEFAULT_LIMITS, time_limit_s=request.time_limit_s, clock_s=self._monotonic_s)
            with _named_fields():
                return plan_caps(tree, terms=request.terms, solver=request.solver, limits=limits)

        return await to_thread.run_sync(work, limiter=self._limiter)

    async def solve(
        self, request: PlanRequest, *, gpus: GpuCatalogue, models: ModelCatalogue, prices: PriceSheet
    ) -> Plan:
        """Solve a request with the catalogues in force; 503 when too many requests wait."""
        self._refuse_when_busy()

        def work() -> Plan:
            return plan(request, gpus=gpus, models=models, prices=prices, now=self._now(), clock_s=self._monotonic_s)

        return await to_thread.run_sync(work, limiter=self._limiter)


@contextmanager
def _named_fields() -> Iterator[None]:
    """Report an error that appears only while solving as a defect of the request, with its field."""
    try:
        yield
    except RuleError as error:
        problems = [Problem(dotted(path), message) for path, message in error.violations]
        raise DocumentError(name="request", problems=problems) from error
