"""One choice per layer under a ceiling on the mean, against all combinations."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.traffic.knapsack import chosen


def best(imbalances: list[list[float]], costs: list[list[float]], ceiling: float) -> float:
    layers = range(len(costs))
    fits = [
        sum(costs[layer][choice] for layer, choice in zip(layers, picked, strict=True))
        for picked in product(range(len(costs[0])), repeat=len(costs))
        if np.mean([imbalances[layer][choice] for layer, choice in zip(layers, picked, strict=True)]) <= ceiling
    ]
    return min(fits, default=np.inf)


@given(seed=st.integers(0, 10_000), ceiling=st.floats(1.0, 1.5))
def test_the_ceiling_holds_and_the_cost_is_near_the_optimum(seed: int, ceiling: float) -> None:
    rng = np.random.default_rng(seed)
    imbalances, costs = 1 + rng.random((4, 3)), rng.random((4, 3))
    rows = np.arange(4)
    picked = chosen(imbalances, costs, ceiling=ceiling)
    least = best(imbalances.tolist(), costs.tolist(), ceiling)
    if np.isfinite(least):
        assert imbalances[rows, picked].mean() <= ceiling + 1e-9
        widest = float((costs.max(axis=1) - costs.min(axis=1)).max())
        assert costs[rows, picked].sum() <= least + widest + 1e-9  # the cost of the last step of one layer
    else:
        assert (imbalances[rows, picked] == imbalances.min(axis=1)).all()


def test_the_budget_is_spent_where_it_saves_most() -> None:
    imbalances = np.array([[1.0, 1.2], [1.0, 1.2]])
    costs = np.array([[3.0, 2.9], [3.0, 2.0]])
    assert chosen(imbalances, costs, ceiling=1.1).tolist() == [0, 1]
