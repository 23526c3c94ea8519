"""One option per layer so that the mean imbalance keeps the ceiling: where a little more of it saves most traffic.

Layers run one after another, so the ceiling is on the mean, and each layer may lie above it if others lie below: a
knapsack with one choice per layer.  Greedy along each layer's lower convex hull, steepest first, which is the
Lagrangian's optimum up to the last step; then whatever single changes still fit.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from placement.arrays import Floats, Ints

EPSILON = 1e-12


def chosen(imbalances: Floats, costs: Floats, *, ceiling: float) -> Ints:
    """[layers]: the selected options, from [layers, options]; infinite where there is none.

    Where no selection keeps the ceiling: the options of least imbalance.
    """
    layers = len(imbalances)
    hulls = [_hull(*pair) for pair in zip(imbalances, costs, strict=True)]
    at = [0] * layers
    left = ceiling * layers - sum(imbalances[layer, hull[0]] for layer, hull in enumerate(hulls))
    steps = [(_slope(imbalances[layer], costs[layer], hull, 0), layer) for layer, hull in enumerate(hulls)]
    heapify(steps)
    while steps:
        slope, layer = heappop(steps)
        hull = hulls[layer]
        if slope >= 0:
            break
        more = imbalances[layer, hull[at[layer] + 1]] - imbalances[layer, hull[at[layer]]]
        if more > left + EPSILON:
            continue
        left -= more
        at[layer] += 1
        heappush(steps, (_slope(imbalances[layer], costs[layer], hull, at[layer]), layer))
    picked = np.array([hull[place] for place, hull in zip(at, hulls, strict=True)], dtype=np.int64)
    return _filled(imbalances, costs, picked, left)


def _hull(imbalances: Floats, costs: Floats) -> list[int]:
    """Options from the most even to the cheapest, each step saving less per imbalance than the one before."""
    order = [int(option) for option in np.lexsort((costs, imbalances)) if np.isfinite(costs[option])]
    hull: list[int] = []
    for option in order:
        if hull and costs[option] >= costs[hull[-1]] - EPSILON:
            continue
        while len(hull) > 1 and _above(imbalances, costs, hull[-2], hull[-1], option):
            hull.pop()
        hull.append(option)
    return hull


def _above(imbalances: Floats, costs: Floats, one: int, between: int, other: int) -> bool:
    """Whether an option lies above the hull: it saves less per imbalance than skipping it."""
    mine = (costs[between] - costs[one]) * (imbalances[other] - imbalances[one])
    return bool(mine >= (costs[other] - costs[one]) * (imbalances[between] - imbalances[one]))


def _slope(imbalances: Floats, costs: Floats, hull: list[int], at: int) -> float:
    if at + 1 >= len(hull):
        return np.inf
    one, other = hull[at], hull[at + 1]
    return float((costs[other] - costs[one]) / max(EPSILON, imbalances[other] - imbalances[one]))


def _filled(imbalances: Floats, costs: Floats, picked: Ints, left: float) -> Ints:
    """Spend the rest of the ceiling on the single changes that save most."""
    while (change := _best_change(imbalances, costs, picked, left)) is not None:
        layer, option = change
        left -= imbalances[layer, option] - imbalances[layer, picked[layer]]
        picked[layer] = option
    return picked


def _best_change(imbalances: Floats, costs: Floats, picked: Ints, left: float) -> tuple[int, int] | None:
    rows = np.arange(len(picked))
    saved = costs[rows, picked][:, np.newaxis] - costs
    fits = imbalances - imbalances[rows, picked][:, np.newaxis] <= max(left, 0.0) + EPSILON
    saved = np.where(fits, saved, -np.inf)
    layer, option = (int(place) for place in np.unravel_index(int(saved.argmax()), saved.shape))
    return (layer, option) if saved[layer, option] > EPSILON else None
