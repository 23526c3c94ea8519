"""Defines the kinds of stored results: what each job reads, how its process solves it, and what the audit records.

`api.server.routes.stored_results` builds the routes of each kind from its `ResultKind`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from api.jobs.body import read_body
from api.jobs.catalogues import catalogue_texts, gpus_of, models_of, offers_of, plan_texts, stocks_of
from api.jobs.outcome import Report, Solved, Task, refuse
from api.jobs.sweeps import join
from api.schemas.documents import DocumentKind
from api.schemas.faults import FAULT_SIMULATIONS, FaultSimulationRequest
from api.schemas.placements import PLACEMENTS
from api.schemas.plans import PLANS
from api.schemas.power import POWER_PLANS, POWER_SIMULATIONS, CapPlanRequest, SimulationRequest
from api.schemas.results import RequestT, ResultType
from api.schemas.sweeps import SWEEPS, SweepRequest
from api.store import Transaction, canonical_json
from faults.simulator import Score, simulate
from fleet.documents import read_stored
from placement.document import Placement
from placement.request import PlacementRequest
from planner import plan
from planner.request import PlanRequest
from planner.result import Plan
from planner.sweep import Sweep
from planner.validation.slo_validation import replayed_requests
from power.caps import DEFAULT_LIMITS, CapPlan, plan_caps
from power.tree import PowerTree
from power.whatif.cost_estimate import expected_requests
from power.whatif.response import RowResponse

ResultT = TypeVar("ResultT", bound=BaseModel)

MAX_REQUESTS_PER_SERVER_DAY = 20_000  # the built-in mix has some 1,500
TREES_KIND: Final = "power-trees"
TREE: Final = "tree"  # the key of a stored power tree in the inputs
MAX_NAMING_CHARACTERS: Final = 32 * 1024  # of a request that names a stored power tree


@dataclass(frozen=True, slots=True)
class Result(Generic[ResultT]):
    """Holds a result, and the values of its summary that are no field of it."""

    value: ResultT
    also: Mapping[str, Any] = field(default_factory=dict)
    reusable: bool = True  # for the same request and inputs


async def _nothing(_tx: Transaction, _request: str) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKind(Generic[RequestT, ResultT]):
    type: ResultType[RequestT, Any, Any]
    tag: str  # of its operations in the OpenAPI document
    operation: str  # `create_OPERATION`, `list_OPERATIONs`, `get_OPERATION`; also the audit's `OPERATION.created`
    creates: str  # description of `POST`
    solve: Callable[[RequestT, Task, Report], Result[ResultT]]  # in the job's process
    gather: Callable[[Transaction, str], Awaitable[Mapping[str, Any]]] = _nothing  # what `solve` reads, from the store
    observed: Callable[[ResultT], Mapping[str, Any]] = lambda _result: {}  # for the metrics
    audited: frozenset[str] | None = None  # columns that the audit entry repeats; None: all
    cacheable: bool = True  # the same request and inputs have the same result

    def run(self, task: Task, report: Report) -> Solved:
        """Read the request, solve it, and write the result as it is stored."""
        report("reading the request", None)
        request = read_body(self.type.request, task.request)
        result = self.solve(request, task, report)
        report("writing the result", None)
        return Solved(
            output=canonical_json(result.value.model_dump(mode="json")),
            request=canonical_json(request.model_dump(mode="json")),
            columns=self.type.columns(result.value, result.also),
            observed=self.observed(result.value),
            reusable=result.reusable,
        )


def refuse_long_replay(request: PlanRequest, task: Task, *, field: str) -> None:
    """Refuse a replay of more requests than this installation allows."""
    replayed, allowed = replayed_requests(request), task.limits.replayed_requests
    if replayed > allowed:
        message = f"the workloads have {replayed:,.0f} requests to replay together, at most {allowed:,} here"
        raise refuse(field, message)


def _solve_plan(request: PlanRequest, task: Task, report: Report) -> Result[Plan]:
    refuse_long_replay(request, task, field="replay.hours")
    return Result(
        plan(
            request,
            gpus=gpus_of(task.inputs),
            models=models_of(task.inputs),
            prices=offers_of(task.inputs),
            stocks=stocks_of(task.inputs),
            now=task.now,
            clock_s=time.monotonic,
            report=report,
        )
    )


def _join_sweep(request: SweepRequest, task: Task, report: Report) -> Result[Sweep]:
    sweep = join(request, task, report)
    over = ", ".join(axis.name for axis in request.axes)
    columns = {"points": len(sweep.points), "failed": len(sweep.failed), "over": over}
    return Result(sweep, columns, reusable=not sweep.failed)


async def _placement_inputs(tx: Transaction, _request: str) -> Mapping[str, Any]:
    return await catalogue_texts(tx, DocumentKind.MODELS)


def _place(request: PlacementRequest, task: Task, report: Report) -> Result[Placement]:
    from placement.pipeline import place  # noqa: PLC0415 - loads compiled code, which not every job needs

    report("placing experts", None)
    problem = request.problem(None if request.model is None else models_of(task.inputs).get(request.model))
    placement = place(problem, version=version("fleetwright"), clock_s=time.monotonic)
    return Result(placement, {"imbalance": placement.imbalance.mean, "bound": placement.bound.mean})


async def _cap_inputs(tx: Transaction, request: str) -> Mapping[str, Any]:
    """Read the named tree.  A long request contains its tree, and only the process of the job parses it."""
    if len(request) > MAX_NAMING_CHARACTERS:
        return {}
    name = read_body(CapPlanRequest, request).tree_name
    stored = await tx.documents.head(kind=TREES_KIND, name=name) if name is not None else None
    return {TREE: (stored.body, stored.version) if stored is not None and stored.body is not None else None}


def _plan_caps(request: CapPlanRequest, task: Task, report: Report) -> Result[CapPlan]:
    tree, tree_version = request.tree, None
    if tree is None:
        if TREE not in task.inputs:
            allowed = f"a request of at most {MAX_NAMING_CHARACTERS:,} characters, or `tree`"
            raise refuse("tree_name", f"is in a longer request; allowed: {allowed}")
        if (stored := task.inputs[TREE]) is None:
            message = f"there is no power tree {request.tree_name!r}; allowed: the name of a stored tree, or `tree`"
            raise refuse("tree_name", message)
        tree, tree_version = read_stored(PowerTree, stored[0]), stored[1]
    report("capping power", None)
    limits = replace(DEFAULT_LIMITS, time_limit_s=request.time_limit_s, clock_s=time.monotonic)
    return Result(
        plan_caps(tree, terms=request.terms, solver=request.solver, limits=limits), {"tree_version": tree_version}
    )


def _simulate_row(request: SimulationRequest, task: Task, report: Report) -> Result[RowResponse]:
    limit = task.limits.simulation_server_days
    if request.server_days > limit:
        raise refuse("days", f"servers x days must be at most {limit:g} here, got {request.server_days:g}")
    requests, allowed = expected_requests(request, request.sources), MAX_REQUESTS_PER_SERVER_DAY * limit
    if not requests <= allowed:
        message = f"such servers would serve about {requests:,.0f} requests in that time, at most {allowed:,.0f} here"
        raise refuse("days", message)
    from power.whatif.run import run_whatif  # noqa: PLC0415 - loads compiled code, which not every job needs

    report("simulating the row", None)
    return Result(run_whatif(request, clock_s=time.monotonic, sources=request.sources).response)


def _simulate_faults(request: FaultSimulationRequest, task: Task, report: Report) -> Result[Score]:
    if request.ranks > task.limits.fault_simulation_ranks:
        raise refuse("ranks", f"must be at most {task.limits.fault_simulation_ranks} here, got {request.ranks}")
    limit = task.limits.fault_simulation_rank_hours
    if request.rank_hours > limit:
        raise refuse("hours", f"ranks x hours must be at most {limit:g} here, got {request.rank_hours:g}")
    report("simulating the cluster", None)
    return Result(simulate(**request.model_dump(mode="json"), clock_s=time.monotonic))


PLAN_KIND = ResultKind(
    type=PLANS,
    tag="plans",
    operation="plan",
    creates="The cheapest GPUs for the workloads.  An infeasible request is a result too: it has the reasons.",
    solve=_solve_plan,
    gather=plan_texts,
    observed=lambda plan: {"status": plan.status.value, "solve_s": plan.solve_s},
)
SWEEP_KIND = ResultKind(
    type=SWEEPS,
    tag="plans",
    operation="sweep",
    creates="One request planned over a grid of factors, with the Pareto front.  Each point is a job of its own.",
    solve=_join_sweep,
)
PLACEMENT_KIND = ResultKind(
    type=PLACEMENTS,
    tag="placements",
    operation="placement",
    creates="Replica counts and slots for the loads.  An unreachable ceiling is a result too: `holds` is false.",
    solve=_place,
    gather=_placement_inputs,
    observed=lambda placement: {
        "imbalance": placement.imbalance.mean,
        "bound": placement.bound.mean,
        "holds": placement.holds,
        "solve_s": placement.solve_s,
    },
    audited=frozenset({"imbalance", "bound", "holds"}),
)
POWER_PLAN_KIND = ResultKind(
    type=POWER_PLANS,
    tag="power",
    operation="power_plan",
    creates="Clocks and budgets at the lowest loss.  An infeasible tree is a result too: it has the conflicts.",
    solve=_plan_caps,
    gather=_cap_inputs,
    observed=lambda plan: {"status": plan.status.value, "solve_s": plan.solve_s},
)
POWER_SIMULATION_KIND = ResultKind(
    type=POWER_SIMULATIONS,
    tag="power",
    operation="power_simulation",
    creates="Brakes, power and latencies of a row under a policy.  Servers times days are limited.",
    solve=_simulate_row,
    observed=lambda row: {"policy": row.policy, "brakes": row.brakes, "run_s": row.total_s},
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
    SWEEP_KIND,
    PLACEMENT_KIND,
    POWER_PLAN_KIND,
    POWER_SIMULATION_KIND,
    FAULT_SIMULATION_KIND,
)
