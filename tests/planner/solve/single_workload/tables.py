"""Small tables: a strategy that draws them, and an exhaustive oracle."""

from itertools import product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog  # type: ignore[import-untyped]

from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from planner.solve.single_workload import Table

RATES = st.just(0.0) | st.integers(1, 60).map(lambda tenths: tenths / 10) | st.floats(0.05, 20.0)
PRICES = st.integers(1, 900).map(lambda cents: cents / 100) | st.floats(0.1, 9.0)
STOCK = st.none() | st.integers(0, 3)


@st.composite
def plain_problems(draw: st.DrawFn, *, max_options: int = 4) -> MixProblem:
    """One workload; options often repeat a table or a multiple of it, so that presolve has an effect."""
    buckets = draw(st.integers(1, 4))
    tables = draw(st.lists(st.lists(RATES, min_size=buckets, max_size=buckets), min_size=1, max_size=max_options))
    picks = draw(st.lists(st.integers(0, len(tables) - 1), min_size=1, max_size=max_options))
    factors = draw(st.lists(st.sampled_from((1.0, 1.0, 0.5)), min_size=len(picks), max_size=len(picks)))
    rates = [tuple(factor * rate for rate in tables[pick]) for pick, factor in zip(picks, factors, strict=True)]
    supplies = tuple(Supply(f"f{o}", draw(PRICES), available=draw(STOCK)) for o in range(len(rates)))
    demand = draw(st.lists(RATES, min_size=buckets, max_size=buckets))
    return MixProblem(
        loads=(Load("w", tuple(demand), utilisation=draw(st.sampled_from((1.0, 0.8)))),),
        supplies=supplies,
        options=tuple(ReplicaOption(f"o{o}", "gpu", o) for o in range(len(rates))),
        routes=tuple(Route(f"o{o}", 0, (Leg(o, row),)) for o, row in enumerate(rates)),
    )


def carries(table: Table, counts: tuple[int, ...]) -> bool:
    """Whether these units carry the demand, by an independent linear program."""
    option, bucket = np.nonzero(np.isfinite(table.units) & (np.array(counts)[:, None] > 0))
    if set(bucket) != set(range(table.units.shape[1])):
        return False
    served = (bucket == np.arange(table.units.shape[1])[:, None]).astype(float)
    loads = (option == np.arange(len(counts))[:, None]) * table.units[option, bucket]
    result = linprog(
        np.append(np.zeros(len(option)), 1.0),
        A_ub=np.hstack([loads, -np.ones((len(counts), 1))]),
        b_ub=np.array(counts, dtype=float),
        A_eq=np.hstack([served, np.zeros((len(served), 1))]),
        b_eq=np.ones(len(served)),
    )
    return bool(result.status == 0 and result.fun <= 1e-9)


def cheapest_by_trying(table: Table) -> float | None:
    """The lowest cost over every combination of counts, or None where none carries the demand."""
    most = np.ceil(np.where(np.isfinite(table.units), table.units, 0.0).sum(axis=1) - 1e-9)
    ranges = [range(int(min(n, stock)) + 1) for n, stock in zip(most, table.stock, strict=True)]
    for counts in sorted(product(*ranges), key=lambda counts: table.cost_usd_per_h(np.array(counts))):
        if carries(table, counts):
            return table.cost_usd_per_h(np.array(counts))
    return None
