"""Small horizons: a strategy that draws them, and an exhaustive search over every path of counts."""

from itertools import product

from hypothesis import strategies as st

from fleet.offers import Market
from fleet.solvers import SolverError
from planner.horizon import CostSplit, HorizonProblem
from planner.horizon.plan import cost_of
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from planner.solve.fixed_counts import route

HALVES = st.integers(0, 8).map(lambda halves: halves / 2)


def two_options(
    *,
    rates_rps: tuple[float, ...],
    markets: tuple[Market, Market] = (Market.ON_DEMAND, Market.ON_DEMAND),
    stock: int | None = 6,
    prices: tuple[float, float] = (1.0, 4.0),
    warmup_h: float = 0.0,
    start_usd: float = 0.0,
    stop_usd: float = 0.0,
    initial: tuple[int, int] | None = None,
    uptime: float = 1.0,
) -> HorizonProblem:
    """A small GPU that holds 2 requests/s and a large one that holds 10; one bucket, periods of an hour."""
    base = MixProblem(
        loads=(Load("chat", (1.0,)),),
        supplies=(Supply("small", prices[0], available=stock), Supply("large", prices[1], available=stock)),
        options=(ReplicaOption("small", "L4", 0, uptime=uptime), ReplicaOption("large", "H100", 1)),
        routes=(Route("small", 0, (Leg(0, (2.0,)),)), Route("large", 0, (Leg(1, (10.0,)),))),
    )
    return HorizonProblem.scaled(
        base,
        [(rate,) for rate in rates_rps],
        period_h=1.0,
        markets=markets,
        warmup_h=(warmup_h, warmup_h),
        start_usd=start_usd,
        stop_usd=stop_usd,
        initial=initial,
    )


@st.composite
def horizons(draw: st.DrawFn) -> HorizonProblem:
    """Two or three periods of one or two buckets on two options with at most two units each."""
    buckets = draw(st.integers(1, 2))
    rate = st.lists(HALVES, min_size=buckets, max_size=buckets).map(tuple)
    periods = draw(st.integers(2, 3))
    slots = draw(st.sampled_from((1, 2)))
    supplies = tuple(
        Supply(f"f{f}", draw(st.integers(1, 9)) / 2, slots=slots if f else 1, available=draw(st.integers(1, 2)))
        for f in range(2)
    )
    options = tuple(
        ReplicaOption(f"o{f}", f"gpu{f}", f, slots=1, uptime=draw(st.sampled_from((1.0, 0.75)))) for f in range(2)
    )
    routes = tuple(Route(f"o{o}", 0, (Leg(o, draw(rate)),)) for o in range(2))
    load = Load(
        "w", (0.0,) * buckets, min_replicas=draw(st.integers(0, 1)), utilisation=draw(st.sampled_from((1, 0.8)))
    )
    most = [supplies[option.supply].slots * (supplies[option.supply].available or 0) for option in options]
    return HorizonProblem(
        base=MixProblem((load,), supplies, options, routes),
        rates_rps=tuple((draw(rate),) for _ in range(periods)),
        period_h=draw(st.sampled_from((1.0, 0.5))),
        markets=(draw(st.sampled_from(Market)), draw(st.sampled_from(Market))),
        warmup_h=(draw(st.sampled_from((0.0, 0.5, 1.0))), draw(st.sampled_from((0.0, 0.5)))),
        start_usd=draw(st.sampled_from((0.0, 0.3, 2.0))),
        stop_usd=draw(st.sampled_from((0.0, 0.1))),
        initial=draw(st.none() | st.tuples(st.integers(0, most[0]), st.integers(0, most[1]))),
    )


def cheapest_by_trying(problem: HorizonProblem) -> float | None:
    """The lowest cost over every path of replica counts and every commitment; None where none serves all periods."""
    options, supplies = problem.base.options, problem.base.supplies
    most = [supplies[o.supply].slots * (supplies[o.supply].available or 0) for o in options]
    rows = list(product(*(range(count + 1) for count in most)))
    rows = [
        row
        for row in rows
        if all(u <= (s.available or 0) for u, s in zip(problem.base.units_of(row), supplies, strict=True))
    ]
    serving = [{row for row in rows if _serves(problem, t, row)} for t in range(problem.periods)]
    costs = [
        _cost(problem, held).total_usd
        for held in product(rows, repeat=problem.periods)
        if all(problem.ready(held, t) in serving[t] for t in range(problem.periods))
    ]
    return min(costs, default=None)


def _cost(problem: HorizonProblem, held: tuple[tuple[int, ...], ...]) -> CostSplit:
    units = tuple(problem.base.units_of(row) for row in held)
    reserved = [f for f in range(len(problem.base.supplies)) if problem.reserved(f)]
    return cost_of(problem, units=units, held=held, committed={f: max(row[f] for row in units) for f in reserved})


def _serves(problem: HorizonProblem, period: int, ready: tuple[int, ...]) -> bool:
    mix = problem.mix(period)
    if any(sum(ready[o] for o in mix.options_of(w)) < load.min_replicas for w, load in enumerate(mix.loads)):
        return False
    try:
        route(mix, replicas=ready)
    except SolverError:
        return False
    return True
