"""The result of a horizon: counts and routing per period, and the cost in five categories."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.offers import Market
from fleet.solvers import SolveStatus
from planner.horizon.problem import HorizonProblem
from planner.solve.fixed_counts import route
from planner.solve.solution import Shares

Counts = tuple[tuple[int, ...], ...]  # [period][option or supply]


@dataclass(frozen=True, slots=True)
class CostSplit:
    """$ over the whole horizon; the total is their sum."""

    reserved_usd: float = 0.0
    on_demand_usd: float = 0.0
    spot_usd: float = 0.0
    owned_usd: float = 0.0
    switching_usd: float = 0.0

    @property
    def total_usd(self) -> float:
        return self.reserved_usd + self.on_demand_usd + self.spot_usd + self.owned_usd + self.switching_usd


@dataclass(frozen=True, slots=True)
class PeriodPlan:
    units: tuple[int, ...]  # per supply, in use; of a reserved supply at most the commitment
    held: tuple[int, ...]  # replicas per option that run, warm or not
    ready: tuple[int, ...]  # replicas per option that serve
    started: tuple[int, ...]  # replicas per option hired at its begin; they serve once warm
    stopped: tuple[int, ...]  # replicas per option stopped at its begin
    shares: Shares  # (route, bucket) -> share of the bucket


@dataclass(frozen=True, slots=True)
class HorizonPlan:
    """The cheapest plan found over the periods, and its proven bound."""

    status: SolveStatus
    bound_usd: float  # nothing that serves every period costs less over the horizon
    cost: CostSplit | None  # None where there is no plan
    committed: Mapping[int, int]  # reserved units by supply
    periods: tuple[PeriodPlan, ...]
    flat_usd: float | None  # cost of running the cheapest mix for the peak all the time; None: there is none
    reason: str | None = None  # as text, without a plan

    @property
    def gap(self) -> float | None:
        """The largest possible distance of the plan from the optimum, as a share of its cost."""
        if self.cost is None:
            return None
        total_usd = self.cost.total_usd
        return max(0.0, total_usd - self.bound_usd) / total_usd if total_usd > 0 else 0.0

    @property
    def saving(self) -> float | None:
        """The saving against planning the peak all the time."""
        if self.cost is None or not self.flat_usd:
            return None
        return 1 - self.cost.total_usd / self.flat_usd


def moves(problem: HorizonProblem, held: Counts, period: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Replicas per option started and stopped at the begin of a period."""
    before = problem.before(period)
    earlier = held[before] if before is not None else problem.initial or ()
    steps = [now - then for now, then in zip(held[period], earlier, strict=True)]
    return tuple(max(0, step) for step in steps), tuple(max(0, -step) for step in steps)


def cost_of(problem: HorizonProblem, *, units: Counts, held: Counts, committed: Mapping[int, int]) -> CostSplit:
    paid = dict.fromkeys(Market, 0.0)
    for f, (supply, market) in enumerate(zip(problem.base.supplies, problem.markets, strict=True)):
        reserved = market is Market.RESERVED
        used = committed.get(f, 0) * problem.periods if reserved else sum(row[f] for row in units)
        paid[market] += supply.price_usd_per_h * problem.period_h * used
    switching_usd = 0.0
    for period in range(problem.periods):
        started, stopped = moves(problem, held, period)
        switching_usd += problem.start_usd * sum(started) + problem.stop_usd * sum(stopped)
    return CostSplit(
        reserved_usd=paid[Market.RESERVED],
        on_demand_usd=paid[Market.ON_DEMAND],
        spot_usd=paid[Market.SPOT],
        owned_usd=paid[Market.OWNED],
        switching_usd=switching_usd,
    )


def periods_of(problem: HorizonProblem, *, units: Counts, held: Counts) -> tuple[PeriodPlan, ...]:
    """The periods with their routing, which checks the counts a second time."""
    routings: dict[tuple[object, ...], Shares] = {}
    periods = []
    for t in range(problem.periods):
        ready = problem.ready(held, t)
        key = ready, problem.rates_rps[t]
        if key not in routings:
            routings[key] = route(problem.mix(t), replicas=ready)
        started, stopped = moves(problem, held, t)
        periods.append(PeriodPlan(units[t], held[t], ready, started, stopped, routings[key]))
    return tuple(periods)
