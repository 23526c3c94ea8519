"""Defines the kinds of stored results: how the server solves each, and what the audit and the metrics record of it.

`api.server.routes.stored_results` builds the routes of each kind from its `ResultKind`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from api.schemas.faults import FAULT_SIMULATIONS, FaultSimulationRequest
from api.schemas.placements import PLACEMENTS
from api.schemas.plans import PLANS
from api.schemas.power import POWER_PLANS, POWER_SIMULATIONS, CapPlanRequest, SimulationRequest
from api.schemas.results import RequestT, ResultType
from api.server.catalogues import GPUS, MODELS, OFFERS
from api.server.metrics import ServiceMetrics
from api.server.power_trees import TREES
from api.server.problems import invalid
from api.server.service import Service
from faults.simulator import Score, simulate
from placement.document import Placement
from placement.request import PlacementRequest
from planner import plan
from planner.request import PlanRequest
from planner.result import Plan
from power.caps import DEFAULT_LIMITS, CapPlan, plan_caps
from power.whatif.cost_estimate import expected_requests
from power.whatif.response import RowResponse

ResultT = TypeVar("ResultT", bound=BaseModel)

MAX_REQUESTS_PER_SERVER_DAY = 20_000  # the built-in mix has some 1,500


@dataclass(frozen=True, slots=True)
class Solved(Generic[ResultT]):
    """Holds a result, and the values of its summary that are no field of it."""

    result: ResultT
    also: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKind(Generic[RequestT, ResultT]):
    type: ResultType[RequestT, Any, Any]
    tag: str  # of its operations in the OpenAPI document
    operation: str  # `create_OPERATION`, `list_OPERATIONs`, `get_OPERATION`; also the audit's `OPERATION.created`
    creates: str  # description of `POST`
    solve: Callable[[Service, RequestT], Awaitable[Solved[ResultT]]]
    observe: Callable[[ServiceMetrics, ResultT], None] = lambda _metrics, _result: None
    audited: frozenset[str] | None = None  # columns that the audit entry repeats; None: all


async def _solve_plan(service: Service, request: PlanRequest) -> Solved[Plan]:
    async with service.store.reading() as tx:
        gpus, models, prices = await GPUS.in_force(tx), await MODELS.in_force(tx), await OFFERS.in_force(tx)
    found = await service.solver_pool.solve(
        lambda: plan(request, gpus=gpus, models=models, prices=prices, now=service.now(), clock_s=service.monotonic_s)
    )
    return Solved(found)


async def _place(service: Service, request: PlacementRequest) -> Solved[Placement]:
    async with service.store.reading() as tx:
        models = await MODELS.in_force(tx)

    def work() -> Placement:
        from placement.pipeline import place  # noqa: PLC0415 - loads compiled code, which not every service needs

        problem = request.problem(None if request.model is None else models.get(request.model))
        return place(problem, version=version("fleetwright"), clock_s=service.monotonic_s)

    placement = await service.solver_pool.solve(work)
    return Solved(placement, {"imbalance": placement.imbalance.mean, "bound": placement.bound.mean})


async def _plan_caps(service: Service, request: CapPlanRequest) -> Solved[CapPlan]:
    tree, tree_version = request.tree, None
    if tree is None:
        async with service.store.reading() as tx:
            stored = await TREES.find(tx, request.tree_name or "")
        if stored is None:
            message = f"there is no power tree {request.tree_name!r}; allowed: the name of a stored tree, or `tree`"
            raise invalid("tree_name", message)
        tree, tree_version = stored.spec, stored.version
    planned, limits = tree, replace(DEFAULT_LIMITS, time_limit_s=request.time_limit_s, clock_s=service.monotonic_s)
    found = await service.solver_pool.solve(
        lambda: plan_caps(planned, terms=request.terms, solver=request.solver, limits=limits)
    )
    return Solved(found, {"tree_version": tree_version})


async def _simulate_row(service: Service, request: SimulationRequest) -> Solved[RowResponse]:
    limit = service.settings.simulation_server_days
    if request.server_days > limit:
        raise invalid("days", f"servers x days must be at most {limit:g} here, got {request.server_days:g}")
    requests, allowed = expected_requests(request, request.sources), MAX_REQUESTS_PER_SERVER_DAY * limit
    if not requests <= allowed:
        message = f"such servers would serve about {requests:,.0f} requests in that time, at most {allowed:,.0f} here"
        raise invalid("days", message)

    def work() -> RowResponse:
        from power.whatif.run import run_whatif  # noqa: PLC0415 - loads compiled code, which not every service needs

        return run_whatif(request, clock_s=service.monotonic_s, sources=request.sources).response

    return Solved(await service.solver_pool.solve(work))


async def _simulate_faults(service: Service, request: FaultSimulationRequest) -> Solved[Score]:
    limit = service.settings.fault_simulation_rank_hours
    if request.rank_hours > limit:
        raise invalid("hours", f"ranks x hours must be at most {limit:g} here, got {request.rank_hours:g}")
    options = request.model_dump(mode="json")
    return Solved(await service.solver_pool.solve(lambda: simulate(**options, clock_s=service.monotonic_s)))


PLAN_KIND = ResultKind(
    type=PLANS,
    tag="plans",
    operation="plan",
    creates="The cheapest GPUs for the workloads.  An infeasible request is a result too: it has the reasons.",
    solve=_solve_plan,
    observe=lambda metrics, plan: metrics.observe_plan(status=plan.status, solve_s=plan.solve_s),
)
PLACEMENT_KIND = ResultKind(
    type=PLACEMENTS,
    tag="placements",
    operation="placement",
    creates="Replica counts and slots for the loads.  An unreachable ceiling is a result too: `holds` is false.",
    solve=_place,
    observe=lambda metrics, placement: metrics.observe_placement(
        imbalance=placement.imbalance.mean,
        bound=placement.bound.mean,
        holds=placement.holds,
        solve_s=placement.solve_s,
    ),
    audited=frozenset({"imbalance", "bound", "holds"}),
)
POWER_PLAN_KIND = ResultKind(
    type=POWER_PLANS,
    tag="power",
    operation="power_plan",
    creates="Clocks and budgets at the lowest loss.  An infeasible tree is a result too: it has the conflicts.",
    solve=_plan_caps,
    observe=lambda metrics, plan: metrics.observe_cap_plan(status=plan.status, solve_s=plan.solve_s),
)
POWER_SIMULATION_KIND = ResultKind(
    type=POWER_SIMULATIONS,
    tag="power",
    operation="power_simulation",
    creates="Brakes, power and latencies of a row under a policy.  Servers times days are limited.",
    solve=_simulate_row,
    observe=lambda metrics, row: metrics.observe_simulation(policy=row.policy, brakes=row.brakes, run_s=row.total_s),
)
FAULT_SIMULATION_KIND = ResultKind(
    type=FAULT_SIMULATIONS,
    tag="faults",
    operation="fault_simulation",
    creates="Recall, precision, false isolations and detection times.  Ranks times hours are limited.",
    solve=_simulate_faults,
)
KINDS: tuple[ResultKind[Any, Any], ...] = (
    PLAN_KIND,
    PLACEMENT_KIND,
    POWER_PLAN_KIND,
    POWER_SIMULATION_KIND,
    FAULT_SIMULATION_KIND,
)
