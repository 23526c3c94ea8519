"""From counts and shares to the parts of the plan."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime

from planner.answer import Allocation, Hire, InputAge, InputKind
from planner.options.expert_imbalance import ExpertSpread
from planner.options.search import Candidate
from planner.performance.coefficients import builtin_coefficients
from planner.problem import MixProblem
from planner.request import PlanRequest
from planner.solve.solution import MixSolution
from planner.throughput import Provenance, Throughput

PREDICTED = {Provenance.CALIBRATED, Provenance.MEASURED_AND_CALIBRATED}


def allocations(request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution) -> Iterator[Allocation]:
    for candidate, count, busy in zip(candidates, solution.replicas, solution.busy, strict=True):
        if count:
            yield Allocation(
                workload=request.workloads[candidate.workload].name,
                option=candidate.name,
                gpu=candidate.gpu_name,
                count=count,
                gpus_per_replica=candidate.gpus,
                clock=None if candidate.shape is None else candidate.shape.clock,
                offer=candidate.offer.id if candidate.offer is not None else None,
                busy=busy / count,
                power_w=None if candidate.power is None else candidate.power.planned_busy_w * count,
            )


def hires(problem: MixProblem, candidates: Sequence[Candidate], solution: MixSolution) -> Iterator[Hire]:
    offers = {option.supply: candidate.offer for option, candidate in zip(problem.options, candidates, strict=True)}
    for f, (supply, units) in enumerate(zip(problem.supplies, solution.units, strict=True)):
        if units:
            offer = offers[f]
            yield Hire(
                name=supply.name,
                offer=None if offer is None else offer.id,
                units=units,
                gpus_per_unit=None if offer is None else offer.gpus_per_instance,
                price_usd_per_h=supply.price_usd_per_h,
                cost_usd_per_h=round(supply.price_usd_per_h * units, 9),
            )


def throughputs(
    request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution
) -> dict[str, dict[str, Throughput]]:
    """Workload -> option in use -> its throughput table."""
    tables: dict[str, dict[str, Throughput]] = {workload.name: {} for workload in request.workloads}
    for candidate, count in zip(candidates, solution.replicas, strict=True):
        if count:
            tables[request.workloads[candidate.workload].name][candidate.name] = candidate.throughput
    return tables


def expert_spreads(
    request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution
) -> dict[str, dict[str, ExpertSpread]]:
    """Workload -> option in use that distributes experts -> its imbalance; workloads without one are left out."""
    spreads: dict[str, dict[str, ExpertSpread]] = {}
    for candidate, count in zip(candidates, solution.replicas, strict=True):
        if count and candidate.spread is not None:
            spreads.setdefault(request.workloads[candidate.workload].name, {})[candidate.name] = candidate.spread
    return spreads


def input_ages(request: PlanRequest, candidates: Sequence[Candidate], *, now: datetime) -> Iterator[InputAge]:
    """The inputs behind these options, each once: sizes, prices, data sheets, models, and the sources of rates."""
    today = now.date()
    for workload in request.workloads:
        yield InputAge(kind="sizes", name=workload.name, as_of=None, age_days=None, source=workload.sizes.note)
    priced = {(candidate.offer is None, candidate.supply.name): candidate for candidate in candidates}.values()
    for candidate in priced:
        offer = candidate.offer
        if offer is None:
            yield InputAge(kind="price", name=candidate.supply.name, as_of=None, age_days=None, source="the request")
        else:
            yield _dated("price", offer.id, offer.as_of, offer.source, today=today)
    for gpu in {candidate.gpu.name: candidate.gpu for candidate in candidates if candidate.gpu is not None}.values():
        yield _dated("gpu", gpu.name, gpu.date, gpu.source, today=today)
    for model in {c.model.name: c.model for c in candidates if c.model is not None}.values():
        yield _dated("model", model.name, model.date, model.source, today=today)
    if any(candidate.throughput.provenance in PREDICTED for candidate in candidates):
        fit = builtin_coefficients()
        yield _dated("performance", "coefficients", fit.fitted, fit.source, today=today)
    yield from _measurements(request, today=today)


def _measurements(request: PlanRequest, *, today: date) -> Iterator[InputAge]:
    points = () if request.profiles is None else request.profiles.points
    for source in dict.fromkeys(point.source for point in points):
        dates = [point.date for point in points if point.source == source and point.date is not None]
        yield _dated("profiles", source or "not stated", min(dates, default=None), source, today=today)


def _dated(
    kind: InputKind,
    name: str,
    as_of: date | None,
    source: str | None,
    *,
    today: date,
) -> InputAge:
    """A date in the future, as from another time zone, has age 0."""
    age_days = None if as_of is None else max(0, (today - as_of).days)
    return InputAge(kind=kind, name=name, as_of=as_of, age_days=age_days, source=source)
