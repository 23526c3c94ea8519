"""Plans one request over a grid of rates, SLOs, prices and power limits.

An axis multiplies values of the request by a list of factors; several axes form a grid.  A point is on the Pareto front
if no other point at the same prices demands at least as much on every axis at no higher cost, and demands more on
one axis or costs less.  For an objective other than cost, its value counts too.  A plan whose replay violates its SLO
is never on the front and removes no other point.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice, product
from math import isfinite, prod
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError

from fleet.catalogues import folded
from fleet.documents import Frozen, RuleError, dotted, validation_problems
from fleet.gpus import GpuCatalogue, builtin_gpus
from fleet.offers import Offer, PriceSheet
from fleet.slo import LatencyLimits, Metric, Slo
from fleet.solvers import SolveStatus
from planner.objectives import COST, Objective
from planner.policy import ExplainLevel, PowerDomainLimit
from planner.request import GivenOption, PlanRequest, Workload
from planner.result import Plan

MAX_POINTS = 10_000
MAX_SHOWN = 60  # characters of the input in an error

Priced = TypeVar("Priced", Offer, GivenOption)
Changed = TypeVar("Changed", Offer, GivenOption, PowerDomainLimit)
Names = frozenset[str] | None  # names in the request that an axis scales; None: all
GridRequest = tuple[dict[str, float], PlanRequest, PriceSheet]


class Knob(StrEnum):
    """The values that an axis scales."""

    RATE = "rate"  # of all workloads, or of one
    SLO = "slo"  # every limit of all workloads, or of one
    PRICE = "price"  # of all GPUs, or of one type
    POWER = "power"  # of all power domains, or of one

    @property
    def harder_upwards(self) -> bool | None:
        """Whether more is harder to serve; None for prices, which are not ranked."""
        return {Knob.RATE: True, Knob.SLO: False, Knob.POWER: False}.get(self)


class Axis(Frozen):
    """The scaled values and their factors."""

    knob: Knob
    subject: str | None = Field(default=None, description="A workload, GPU type or power domain; absent: all of them.")
    factors: tuple[float, ...] = Field(min_length=1, max_length=MAX_POINTS)

    @property
    def name(self) -> str:
        """`rate`, or `price:H100`."""
        return str(self.knob) if self.subject is None else f"{self.knob}:{self.subject}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`rate=1,2,4`, `slo:chat=0.5:2:7` (from 0.5 to 2 in 7 steps of equal ratio)."""
        name, _, values = text.partition("=")
        knob, _, subject = name.strip().partition(":")
        if knob not in set(Knob):
            known = ", ".join(Knob)
            raise RuleError([((), f"{text!r} does not begin with one of {known}: expected KNOB[:NAME]=FACTORS")])
        return cls(knob=Knob(knob), subject=subject or None, factors=_factors(values, text))


class SweepPoint(Frozen):
    """One plan of the grid."""

    factors: dict[str, float]
    status: SolveStatus
    cost_usd_per_h: float | None
    gap: float | None
    power_w: float | None
    gpus: int
    mix: str = Field(description="Replicas by option.")
    goal_value: float | None = Field(
        default=None, description="Of the objective: $/h, W, g/h or requests/s; absent without a mix."
    )
    verified: bool | None = Field(
        default=None, description="Whether every limit of every SLO held in the replay; absent: not replayed."
    )
    pareto: bool = False


class FailedPoint(Frozen):
    """A point of the grid that could not be planned."""

    factors: dict[str, float]
    reason: str


class Sweep(Frozen):
    """The whole grid, in the order of the axes."""

    axes: tuple[Axis, ...]
    goal: Objective = Field(default="cost", validate_default=True)
    points: tuple[SweepPoint, ...]
    failed: tuple[FailedPoint, ...] = ()


def count_points(axes: Sequence[Axis]) -> int:
    return prod(len(axis.factors) for axis in axes)


def grid_factors(axes: Sequence[Axis]) -> Iterator[dict[str, float]]:
    """Yield the factors of every point by axis, in the order of the grid."""
    for factors in product(*(axis.factors for axis in axes)):
        yield {axis.name: factor for axis, factor in zip(axes, factors, strict=True)}


def grid_requests(
    request: PlanRequest, prices: PriceSheet, axes: Sequence[Axis], *, gpus: GpuCatalogue | None = None
) -> tuple[GridRequest, ...]:
    """Every request of the grid, without explanation, with its factors.

    `gpus` resolves the names of GPU types.  RuleError names the axis, and the factor if a scaled value is out of range.
    """
    known = builtin_gpus() if gpus is None else gpus
    RuleError.raise_for(_violations(request, prices, axes, known))
    targets = [(axis, _meant(axis, request, prices, known)) for axis in axes]
    grid = product(*(axis.factors for axis in axes))
    bare = request.explained(ExplainLevel.NONE)
    return tuple(_scaled_request(bare, prices, targets, factors) for factors in grid)


def grid_request(
    request: PlanRequest, prices: PriceSheet, axes: Sequence[Axis], position: int, *, gpus: GpuCatalogue
) -> GridRequest:
    """One request of a grid that `grid_requests` accepts, by its position."""
    targets = [(axis, _meant(axis, request, prices, gpus)) for axis in axes]
    factors = next(islice(product(*(axis.factors for axis in axes)), position, None))
    return _scaled_request(request.explained(ExplainLevel.NONE), prices, targets, factors)


def point(factors: dict[str, float], plan: Plan) -> SweepPoint:
    mix = " + ".join(f"{entry.count} x {entry.option}" for entry in plan.allocation)
    return SweepPoint(
        factors=factors,
        status=plan.status,
        cost_usd_per_h=plan.cost_usd_per_h,
        gap=plan.gap,
        power_w=plan.power_w,
        gpus=sum(entry.count * entry.gpus_per_replica for entry in plan.allocation),
        mix=mix or "-",
        goal_value=plan.goal_value,
        verified=plan.verified,
    )


def mark_front(
    axes: Sequence[Axis],
    points: Sequence[SweepPoint],
    *,
    goal: Objective = COST,
    failed: Sequence[FailedPoint] = (),
) -> Sweep:
    by_price: dict[tuple[float, ...], list[SweepPoint]] = {}
    for one in points:
        by_price.setdefault(_prices(axes, one), []).append(one)
    front = {id(one) for group in by_price.values() for one in _front(axes, group, goal)}
    marked = tuple(one.model_copy(update={"pareto": id(one) in front}) for one in points)
    return Sweep(axes=tuple(axes), goal=goal, points=marked, failed=tuple(failed))


def _front(axes: Sequence[Axis], points: Sequence[SweepPoint], goal: Objective) -> Iterator[SweepPoint]:
    holding = [one for one in points if one.cost_usd_per_h is not None and one.verified is not False]
    merits = [(*_demanded(axes, one), *_achieved(one, goal)) for one in holding]
    distinct = set(merits)
    for one, mine in zip(holding, merits, strict=True):
        if not any(other != mine and all(a >= b for a, b in zip(other, mine, strict=True)) for other in distinct):
            yield one


def _achieved(point: SweepPoint, goal: Objective) -> tuple[float, ...]:
    """The figures of a plan to compare; more is better."""
    cost = -(point.cost_usd_per_h or 0.0)
    if goal.counts_price:
        return (cost,)
    value = point.goal_value or 0.0
    return cost, value if goal.maximises else -value


def _prices(axes: Sequence[Axis], point: SweepPoint) -> tuple[float, ...]:
    return tuple(point.factors[axis.name] for axis in axes if axis.knob.harder_upwards is None)


def _demanded(axes: Sequence[Axis], point: SweepPoint) -> tuple[float, ...]:
    """The demand of a point on each axis; more is harder."""
    return tuple(
        point.factors[axis.name] * (1 if axis.knob.harder_upwards else -1)
        for axis in axes
        if axis.knob.harder_upwards is not None
    )


def _scaled_request(
    request: PlanRequest, prices: PriceSheet, targets: Sequence[tuple[Axis, Names]], factors: Sequence[float]
) -> GridRequest:
    for position, ((axis, names), factor) in enumerate(zip(targets, factors, strict=True)):
        try:
            request = _SCALE[axis.knob](request, names, factor)
            if axis.knob is Knob.PRICE and request.offers is None:
                offers = tuple(_repriced(offer, names, factor) for offer in prices.offers)
                prices = prices.model_copy(update={"offers": offers})
        except ValidationError as error:
            path, message = validation_problems(error)[0]
            where = f"{dotted(path)}: " if path else ""
            violation = f"{axis.name}={factor:g} leads out of the valid range: {where}{message}"
            raise RuleError([(("axes", position), violation)]) from error
    return {axis.name: factor for (axis, _), factor in zip(targets, factors, strict=True)}, request, prices


def _scale_rate(request: PlanRequest, names: Names, factor: float) -> PlanRequest:
    def faster(workload: Workload) -> Workload:
        if factor == 1:
            return workload  # a trace is replayed as recorded
        if workload.series is not None:
            return _checked(workload.model_copy(update={"demand": workload.series.scaled(factor)}))
        return _checked(workload.model_copy(update={"rate_rps": workload.planned_rps * factor}))

    return _each_workload(request, names, faster)


def _scale_slo(request: PlanRequest, names: Names, factor: float) -> PlanRequest:
    def stricter(workload: Workload) -> Workload:
        slo = None if workload.slo is None else _scaled(workload.slo, factor)
        return workload.model_copy(update={"slo": slo})

    return _each_workload(request, names, stricter)


def _scale_price(request: PlanRequest, names: Names, factor: float) -> PlanRequest:
    def dearer(workload: Workload) -> Workload:
        options = workload.options and tuple(_repriced(option, names, factor) for option in workload.options)
        return workload.model_copy(update={"options": options})

    scaled = _each_workload(request, None, dearer)
    offers = request.offers and tuple(_repriced(offer, names, factor) for offer in request.offers)
    return scaled.model_copy(update={"offers": offers})


def _scale_power(request: PlanRequest, names: Names, factor: float) -> PlanRequest:
    domains = tuple(
        _changed(domain, limit_w=domain.limit_w * factor) if names is None or domain.name in names else domain
        for domain in request.power_domains
    )
    return request.model_copy(update={"power_domains": domains})


_SCALE: dict[Knob, Callable[[PlanRequest, Names, float], PlanRequest]] = {
    Knob.RATE: _scale_rate,
    Knob.SLO: _scale_slo,
    Knob.PRICE: _scale_price,
    Knob.POWER: _scale_power,
}


def _each_workload(request: PlanRequest, names: Names, change: Callable[[Workload], Workload]) -> PlanRequest:
    workloads = tuple(change(one) if names is None or one.name in names else one for one in request.workloads)
    return request.model_copy(update={"workloads": workloads})


def _repriced(item: Priced, gpus: Names, factor: float) -> Priced:
    if gpus is not None and item.gpu not in gpus:
        return item
    return _changed(item, price_usd_per_h=item.price_usd_per_h * factor)


def _changed(item: Changed, **changes: Any) -> Changed:
    """A copy whose fields are validated, unlike those of pydantic's own copy."""
    return type(item).model_validate({**_fields(item), **changes})


def _checked(workload: Workload) -> Workload:
    """The same workload if its rules hold; a histogram replaces its sizes for the check, because a trace is long."""
    fields = _fields(workload)
    del fields["size_source"]
    Workload.model_validate({**fields, "buckets": workload.buckets})
    return workload


def _fields(item: Frozen) -> dict[str, Any]:
    """The fields without cached properties."""
    return {name: getattr(item, name) for name in type(item).model_fields}


def _scaled(slo: Slo, factor: float) -> Slo:
    limits = {
        str(metric): LatencyLimits(**{str(kind): limit_ms * factor for kind, limit_ms in getattr(slo, metric).items()})
        for metric in Metric
    }
    return Slo(**limits)


def _violations(
    request: PlanRequest, prices: PriceSheet, axes: Sequence[Axis], gpus: GpuCatalogue
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for position, axis in enumerate(axes):
        at = ("axes", position)
        if not all(0 < factor < float("inf") for factor in axis.factors):
            yield at, f"{axis.name}: factors must be more than 0"
        if twice := [factor for number, factor in enumerate(axis.factors) if factor in axis.factors[:number]]:
            yield at, f"{axis.name}: factors must differ, but {twice[0]:g} is given twice"
        known = sorted(_subjects(axis.knob, request, prices))
        if not known:
            yield at, f"{axis.name}: the request has no {_MISSING[axis.knob]} to scale"
        elif not (meant := _meant(axis, request, prices, gpus)) and meant is not None:
            yield at, f"{axis.name}: unknown name {axis.subject!r}, expected one of {', '.join(known)}"
    if len({(axis.knob, _meant(axis, request, prices, gpus)) for axis in axes}) < len(axes):
        yield ("axes",), "the same axis is given twice"
    if (points := count_points(axes)) > MAX_POINTS:
        yield ("axes",), f"come to {points:,} points, expected at most {MAX_POINTS:,}"


def _meant(axis: Axis, request: PlanRequest, prices: PriceSheet, gpus: GpuCatalogue) -> Names:
    """The names in the request that an axis scales; a GPU type has all its catalogue names."""
    if axis.subject is None:
        return None
    wanted = axis.subject if axis.knob is not Knob.PRICE else _gpu_type(axis.subject, gpus)
    known = _subjects(axis.knob, request, prices)
    return frozenset(n for n in known if wanted == (n if axis.knob is not Knob.PRICE else _gpu_type(n, gpus)))


def _gpu_type(name: str, gpus: GpuCatalogue) -> str:
    entry = gpus.index.get(folded(name))
    return folded(name if entry is None else entry.name)


_MISSING = {
    Knob.RATE: "workload",
    Knob.SLO: "SLO (given rates do not depend on the SLO)",
    Knob.PRICE: "price",
    Knob.POWER: "power domain",
}


def _subjects(knob: Knob, request: PlanRequest, prices: PriceSheet) -> Iterable[str]:
    workloads = request.workloads
    if knob is Knob.RATE:
        return {workload.name for workload in workloads}
    if knob is Knob.SLO:
        return {one.name for one in workloads if one.slo is not None and one.options is None}
    if knob is Knob.POWER:
        return {domain.name for domain in request.power_domains}
    offers = prices.offers if request.offers is None else request.offers
    options = (option for workload in workloads for option in workload.options or ())
    return {offer.gpu for offer in offers} | {option.gpu for option in options}


def _factors(values: str, text: str) -> tuple[float, ...]:
    try:
        if ":" in values:
            low, high, count = values.split(":")
            return _geometric(float(low), float(high), int(count))
        return _listed([float(value) for value in values.split(",")])
    except ValueError:
        example = "expected numbers as in rate=0.5,1,2 or rate=0.5:2:7 (from, to, how many)"
        shown = values if len(values) <= MAX_SHOWN else f"{values[:MAX_SHOWN]}..."
        name = text.partition("=")[0]
        raise RuleError([((), f"{name}: {shown!r} are no factors, {example}, at most {MAX_POINTS:,}")]) from None


def _listed(factors: list[float]) -> tuple[float, ...]:
    if not all(map(isfinite, factors)) or len(factors) > MAX_POINTS:
        raise ValueError(factors)
    return tuple(factors)


def _geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    if not (0 < low < high < float("inf") and 2 <= count <= MAX_POINTS):
        raise ValueError(low, high, count)
    ratio = (high / low) ** (1 / (count - 1))
    return tuple(round(low * ratio**step, 9) for step in range(count))
