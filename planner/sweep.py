"""One request many times over, with rate, objectives, prices or power turned up and down: what does each cost?

An axis multiplies what the request says by a list of factors; several axes make a grid.  A point is on the Pareto front
when no other at the same prices asks for at least as much on every axis at no higher cost, and for more, or less cost,
on one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import product
from math import inf
from typing import Self, TypeVar

from pydantic import Field

from fleet.documents import Frozen, RuleError
from fleet.offers import Offer, PriceSheet
from fleet.slo import LatencyLimits, Metric, Slo
from planner.answer import Plan
from planner.request import GivenOption, PlanRequest, Workload
from planner.solvers import SolveStatus

MAX_POINTS = 10_000

Priced = TypeVar("Priced", Offer, GivenOption)


class Knob(StrEnum):
    """What an axis turns."""

    RATE = "rate"  # of all workloads, or of one
    SLO = "slo"  # every limit of all workloads, or of one
    PRICE = "price"  # of all GPUs, or of one type
    POWER = "power"  # of all power domains, or of one

    @property
    def harder_upwards(self) -> bool | None:
        """Whether more is a harder thing to ask for; None: neither, a price is not asked for."""
        return {Knob.RATE: True, Knob.SLO: False, Knob.POWER: False}.get(self)


class Axis(Frozen):
    """A knob, what of it is turned, and the factors."""

    knob: Knob
    subject: str | None = Field(default=None, description="A workload, GPU type or power domain; absent: all of them.")
    factors: tuple[float, ...] = Field(min_length=1, max_length=MAX_POINTS)

    @property
    def name(self) -> str:
        """`rate`, or `price:H100`."""
        return str(self.knob) if self.subject is None else f"{self.knob}:{self.subject}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """`rate=1,2,4`, `slo:chat=0.5:2:7` (from 0.5 to 2 in 7 steps of equal ratio)."""
        name, _, values = text.partition("=")
        knob, _, subject = name.strip().partition(":")
        if knob not in set(Knob):
            known = ", ".join(Knob)
            raise RuleError([((), f"{text!r} does not begin with one of {known}: expected KNOB[:NAME]=FACTORS")])
        return cls(knob=Knob(knob), subject=subject or None, factors=_factors(values, text))


class SweepPoint(Frozen):
    """One answer on the grid."""

    factors: dict[str, float]
    status: SolveStatus
    cost_usd_per_h: float | None
    gap: float | None
    power_w: float
    gpus: int
    mix: str = Field(description="Replicas by option.")
    pareto: bool = False


class Sweep(Frozen):
    """The whole grid, in the order of the axes."""

    axes: tuple[Axis, ...]
    points: tuple[SweepPoint, ...]


Question = tuple[dict[str, float], PlanRequest, PriceSheet]


def questions(request: PlanRequest, prices: PriceSheet, axes: Sequence[Axis]) -> tuple[Question, ...]:
    """Every request of the grid with the factors that made it."""
    RuleError.raise_for(_flaws(request, prices, axes))
    grid = product(*(axis.factors for axis in axes))
    return tuple(_turned(request, prices, list(zip(axes, factors, strict=True))) for factors in grid)


def point(factors: dict[str, float], answer: Plan) -> SweepPoint:
    """What a sweep keeps of a plan."""
    mix = " + ".join(f"{entry.count} x {entry.option}" for entry in answer.allocation)
    return SweepPoint(
        factors=factors,
        status=answer.status,
        cost_usd_per_h=answer.cost_usd_per_h,
        gap=answer.gap,
        power_w=answer.power_w,
        gpus=sum(entry.count * entry.gpus_per_replica for entry in answer.allocation),
        mix=mix or "-",
    )


def gathered(axes: Sequence[Axis], points: Sequence[SweepPoint]) -> Sweep:
    """The points with those on the Pareto front marked."""
    worlds: dict[tuple[float, ...], list[SweepPoint]] = {}
    for one in points:
        worlds.setdefault(_prices(axes, one), []).append(one)
    front = {id(one) for world in worlds.values() for one in _front(axes, world)}
    marked = tuple(one.model_copy(update={"pareto": id(one) in front}) for one in points)
    return Sweep(axes=tuple(axes), points=marked)


def _front(axes: Sequence[Axis], points: Sequence[SweepPoint]) -> Iterator[SweepPoint]:
    asked = [_asked(axes, one) for one in points]
    costs = [one.cost_usd_per_h if one.cost_usd_per_h is not None else inf for one in points]
    for position, one in enumerate(points):
        if costs[position] < inf and not _beaten(position, asked, costs):
            yield one


def _prices(axes: Sequence[Axis], point: SweepPoint) -> tuple[float, ...]:
    return tuple(point.factors[axis.name] for axis in axes if axis.knob.harder_upwards is None)


def _asked(axes: Sequence[Axis], point: SweepPoint) -> tuple[float, ...]:
    """How much a point asks for on each axis; more is harder."""
    return tuple(
        point.factors[axis.name] * (1 if axis.knob.harder_upwards else -1)
        for axis in axes
        if axis.knob.harder_upwards is not None
    )


def _beaten(position: int, asked: Sequence[tuple[float, ...]], costs: Sequence[float]) -> bool:
    mine = asked[position]
    for other, (theirs, cost) in enumerate(zip(asked, costs, strict=True)):
        if other == position or cost > costs[position] or any(a < b for a, b in zip(theirs, mine, strict=True)):
            continue
        if cost < costs[position] or theirs != mine:
            return True
    return False


def _turned(request: PlanRequest, prices: PriceSheet, settings: Sequence[tuple[Axis, float]]) -> Question:
    for axis, factor in settings:
        request = _TURN[axis.knob](request, axis.subject, factor)
        if axis.knob is Knob.PRICE:
            offers = tuple(_repriced(offer, axis.subject, factor) for offer in prices.offers)
            prices = prices.model_copy(update={"offers": offers})
    return {axis.name: factor for axis, factor in settings}, request, prices


def _turn_rate(request: PlanRequest, subject: str | None, factor: float) -> PlanRequest:
    def faster(workload: Workload) -> Workload:
        if workload.demand is not None:
            return workload.model_copy(update={"demand": workload.demand.scaled(factor)})
        return workload.model_copy(update={"rate_rps": (workload.rate_rps or 0.0) * factor})

    return _each_workload(request, subject, faster)


def _turn_slo(request: PlanRequest, subject: str | None, factor: float) -> PlanRequest:
    def stricter(workload: Workload) -> Workload:
        slo = None if workload.slo is None else _scaled(workload.slo, factor)
        return workload.model_copy(update={"slo": slo})

    return _each_workload(request, subject, stricter)


def _turn_price(request: PlanRequest, subject: str | None, factor: float) -> PlanRequest:
    def dearer(workload: Workload) -> Workload:
        options = workload.options and tuple(_repriced(option, subject, factor) for option in workload.options)
        return workload.model_copy(update={"options": options})

    turned = _each_workload(request, None, dearer)
    offers = request.offers and tuple(_repriced(offer, subject, factor) for offer in request.offers)
    return turned.model_copy(update={"offers": offers})


def _turn_power(request: PlanRequest, subject: str | None, factor: float) -> PlanRequest:
    domains = tuple(
        domain.model_copy(update={"limit_w": domain.limit_w * factor}) if subject in {None, domain.name} else domain
        for domain in request.power_domains
    )
    return request.model_copy(update={"power_domains": domains})


_TURN: dict[Knob, Callable[[PlanRequest, str | None, float], PlanRequest]] = {
    Knob.RATE: _turn_rate,
    Knob.SLO: _turn_slo,
    Knob.PRICE: _turn_price,
    Knob.POWER: _turn_power,
}


def _each_workload(request: PlanRequest, subject: str | None, change: Callable[[Workload], Workload]) -> PlanRequest:
    workloads = tuple(change(one) if subject in {None, one.name} else one for one in request.workloads)
    return request.model_copy(update={"workloads": workloads})


def _repriced(item: Priced, gpu: str | None, factor: float) -> Priced:
    if gpu is not None and item.gpu != gpu:
        return item
    return item.model_copy(update={"price_usd_per_h": item.price_usd_per_h * factor})


def _scaled(slo: Slo, factor: float) -> Slo:
    limits = {
        str(metric): LatencyLimits(**{str(kind): limit_ms * factor for kind, limit_ms in getattr(slo, metric).items()})
        for metric in Metric
    }
    return Slo(**limits)


def _factors(values: str, text: str) -> tuple[float, ...]:
    try:
        if ":" in values:
            low, high, count = values.split(":")
            return _geometric(float(low), float(high), int(count))
        return tuple(float(value) for value in values.split(","))
    except ValueError:
        example = "expected numbers as in rate=0.5,1,2 or rate=0.5:2:7 (from, to, how many)"
        raise RuleError([((), f"{text!r}: {values!r} are no factors, {example}")]) from None


def _geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    if not (0 < low <= high < float("inf") and 2 <= count <= MAX_POINTS):
        raise ValueError(low, high, count)
    ratio = (high / low) ** (1 / (count - 1))
    return tuple(round(low * ratio**step, 9) for step in range(count))


def _flaws(
    request: PlanRequest, prices: PriceSheet, axes: Sequence[Axis]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    points = 1
    for position, axis in enumerate(axes):
        points *= len(axis.factors)
        at = ("axes", position)
        if not all(0 < factor < float("inf") for factor in axis.factors):
            yield at, f"{axis.name}: factors must be more than 0"
        known = sorted(_subjects(axis.knob, request, prices))
        if axis.subject is not None and axis.subject not in known:
            yield at, f"{axis.name}: nothing is called {axis.subject!r}, expected one of {', '.join(known) or 'none'}"
        elif not known:
            yield at, f"{axis.name}: the request has no {_MISSING[axis.knob]} to turn"
    if len({axis.name for axis in axes}) < len(axes):
        yield ("axes",), "the same axis is given twice"
    if points > MAX_POINTS:
        yield ("axes",), f"come to {points:,} points, expected at most {MAX_POINTS:,}"


_MISSING = {
    Knob.RATE: "workload",
    Knob.SLO: "SLO (rates given outright hold whatever the SLO)",
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
