"""A day of 96 periods, 14 options, 60 buckets: cost of following the demand, proven gap and time, on one thread.

Options are replicas of five GPU types on the on-demand, spot and reserved market, each hired by itself or packed on
nodes of 4 and 8 GPUs.  Starting a replica costs 0.50 $ and takes a quarter of an hour; reservations are paid all day.
Nodes make whole numbers coarse: there the gap that can be proven in the time is wider, and is shown as it is.
`cpu_s` is what one idle core would need; `wall_s` depends on who else uses the machine.
"""

import time
from collections.abc import Sequence

import numpy as np

from bench.demand_tables import KINDS, day, rates_of, shares
from bench.harness import Row
from fleet.offers import Market
from fleet.solvers import Limits, Solver
from planner.horizon import HorizonPlan, HorizonProblem, solve_horizon
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply

SINGLE, NODES = "single replicas", "nodes of 4 and 8"
LIMITS = Limits(time_limit_s=30.0, relative_gap=0.01)
CASES = ((24, 600.0, SINGLE), (96, 600.0, SINGLE), (96, 3000.0, SINGLE), (24, 600.0, NODES))  # periods, peak, units
SPOT_UPTIME = {"wide": 0.9, "large": 0.92}
DISCOUNT = {Market.ON_DEMAND: 1.0, Market.RESERVED: 0.6, Market.SPOT: 0.45}
STOCK = {("medium", Market.ON_DEMAND): 40, ("wide", Market.SPOT): 10, ("large", Market.SPOT): 16}  # GPUs
NODE_GPUS = {"large": 4, "fast": 8}

OPTIONS: Sequence[tuple[str, Market, int]] = (  # GPU type, market, GPUs of a replica
    ("small", Market.ON_DEMAND, 1),
    ("medium", Market.ON_DEMAND, 1),
    ("medium", Market.RESERVED, 1),
    ("wide", Market.ON_DEMAND, 1),
    ("wide", Market.SPOT, 1),
    *(("large", market, gpus) for market in (Market.ON_DEMAND, Market.RESERVED) for gpus in (1, 2)),
    ("large", Market.SPOT, 1),
    *(("fast", market, gpus) for market in (Market.ON_DEMAND, Market.RESERVED) for gpus in (1, 2)),
)


def run() -> list[Row]:
    return [_row(*case) for case in CASES]


def problem_of(periods: int, peak_rps: float, *, nodes: bool, seed: int = 0) -> HorizonProblem:
    generator = np.random.default_rng(seed)
    base, markets = _base(nodes=nodes, generator=generator)
    rates = peak_rps * np.outer(day(periods, generator=generator), shares(generator))
    return HorizonProblem(
        base=base,
        rates_rps=tuple((tuple(row),) for row in rates.tolist()),
        period_h=24 / periods,
        markets=markets,
        warmup_h=(0.25,) * len(base.options),
        start_usd=0.5,
        stop_usd=0.1,
    )


def _base(*, nodes: bool, generator: np.random.Generator) -> tuple[MixProblem, tuple[Market, ...]]:
    names: dict[str, int] = {}
    supplies: list[Supply] = []
    markets: list[Market] = []
    options: list[ReplicaOption] = []
    routes: list[Route] = []
    for kind, market, gpus in OPTIONS:
        unit_gpus = NODE_GPUS.get(kind, 1) if nodes else gpus
        unit = f"{market} {kind} x{unit_gpus}"
        if unit not in names:
            names[unit] = len(supplies)
            stock = STOCK.get((kind, market))
            price_usd_per_h = KINDS[kind].price_usd_per_h * DISCOUNT[market] * unit_gpus
            supplies.append(Supply(unit, price_usd_per_h, unit_gpus, None if stock is None else stock // unit_gpus))
            markets.append(market)
        name = f"{market} {kind} tp{gpus}"
        uptime = SPOT_UPTIME[kind] if market is Market.SPOT else 1.0
        routes.append(Route(name, 0, (Leg(len(options), rates_of(KINDS[kind], gpus, generator=generator)),)))
        options.append(ReplicaOption(name, kind, names[unit], gpus, uptime))
    load = Load("chat", (0.0,) * len(routes[0].legs[0].max_rps))
    return MixProblem((load,), tuple(supplies), tuple(options), tuple(routes)), tuple(markets)


def _row(periods: int, peak_rps: float, units: str) -> Row:
    problem = problem_of(periods, peak_rps, nodes=units == NODES)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    plan = solve_horizon(problem, solver=Solver.HIGHS, limits=LIMITS, clock=time.perf_counter)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        "case": f"{periods} periods, {peak_rps:g} req/s at the peak, {units}",
        "status": str(plan.status),
        "gap_percent": 100 * (plan.gap if plan.gap is not None else float("inf")),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        **_money(plan),
    }


def _money(plan: HorizonPlan) -> dict[str, float]:
    if plan.cost is None:
        return {}
    return {
        "cost_usd": plan.cost.total_usd,
        "reserved_usd": plan.cost.reserved_usd,
        "on_demand_usd": plan.cost.on_demand_usd,
        "spot_usd": plan.cost.spot_usd,
        "switching_usd": plan.cost.switching_usd,
        "peak_all_day_usd": plan.flat_usd or float("nan"),
        "saving_percent": 100 * (plan.saving or 0.0),
    }
