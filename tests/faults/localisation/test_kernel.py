"""The fit against brute force: every set of up to three entities on small fabrics."""

import itertools

import numpy as np
import pytest

from faults.fabric import Floats
from faults.localisation.entities import Entities, Kind, entities
from faults.localisation.kernel import solve, typical
from faults.localisation.settings import LocaliserSettings
from faults.localisation.window_arrays import MAX, WindowArrays
from tests.faults.localisation.fabrics import rails, slow_leaf, slow_rx, slow_tx, slow_uplink

SLACK = 0.3  # nats: the fit finds a slowdown by least squares, which leaves the softness out
FABRIC = rails(nodes=8, ports=1, leaf_nodes=4, spines=2, peers=3)
ALL = entities(FABRIC, LocaliserSettings())


def arrays(all_of: Entities, residual: Floats) -> WindowArrays:
    cable = all_of.kind >= Kind.UP
    edges = residual.size
    return WindowArrays(
        first=all_of.first, edge=all_of.edge, share=all_of.share, begin=all_of.begin, entity=all_of.entity,
        part=all_of.part, misfit=np.where(cable, 0.3, 0.1), weight=np.ones(len(all_of)),
        price=np.where(cable, 5.0, 9.0), residual=residual, scale=np.full(edges, 0.04), tail=np.full(edges, 4.0),
        odd=np.where(residual > 0.1, 9.0, 1e9), least=np.array([0.08]),
    )  # fmt: skip


def objective(given: WindowArrays, x: Floats) -> float:
    """The objective, computed without the kernel."""
    total = float(given.price[x > 0.0].sum())
    for edge, residual in enumerate(given.residual):
        mine = slice(given.begin[edge], given.begin[edge + 1])
        shown = given.part[mine] * x[given.entity[mine]]
        top = int(shown.argmax())
        most = float(shown[top])
        soft = given.misfit[given.entity[mine][top]] * most if most > 0.0 else 0.0
        wide = (soft / given.scale[edge]) ** 2
        gap2 = ((residual - most) / given.scale[edge]) ** 2 / (1.0 + wide)
        total += min(2.5 * np.log1p(gap2 / 4.0) + 0.5 * np.log1p(wide), float(given.odd[edge]))
    return total


def fitted(given: WindowArrays) -> Floats:
    x, selected = np.zeros(given.price.size), np.arange(given.price.size, dtype=np.int32)
    starts = np.empty(selected.size)
    typical(given, selected, starts)
    solve(given, selected, starts, x, np.zeros(selected.size))
    return x


def brute(given: WindowArrays, most: int) -> float:
    """The best of all sets of up to `most` entities, each set's slowdowns by coordinate search over a fine grid."""
    grid = np.arange(0.08, 0.8, 0.04)
    best = objective(given, np.zeros(given.price.size))
    for size in range(1, most + 1):
        for chosen in itertools.combinations(range(given.price.size), size):
            x = np.zeros(given.price.size)
            x[list(chosen)] = 0.3
            for _ in range(2):
                for k in chosen:
                    values = []
                    for amount in grid:
                        x[k] = amount
                        values.append(objective(given, x))
                    x[k] = grid[int(np.argmin(values))]
            best = min(best, objective(given, x))
    return best


SLOW = {
    "tx": slow_tx(FABRIC, 2, 1.5),
    "rx": slow_rx(FABRIC, 5, 1.4),
    "leaf": slow_leaf(FABRIC, 1, 1.5),
    "cable": slow_uplink(FABRIC, int(FABRIC.up.max()), 1.6),
    "nothing": np.zeros(len(FABRIC)),
}


@pytest.mark.parametrize("case", SLOW)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_fit_is_no_worse_than_the_best_single_entity(case: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = arrays(ALL, SLOW[case] + 0.03 * rng.standard_t(4, len(FABRIC)))
    assert objective(given, fitted(given)) <= brute(given, 1) + SLACK


def test_the_fit_is_no_worse_than_the_best_pair() -> None:
    rng = np.random.default_rng(3)
    slow = np.maximum(slow_tx(FABRIC, 2, 1.5), slow_uplink(FABRIC, int(FABRIC.up.max()), 1.6))
    given = arrays(ALL, slow + 0.03 * rng.standard_t(4, len(FABRIC)))
    few = np.flatnonzero(np.isin(ALL.kind, [Kind.TX, Kind.UP, Kind.LEAF]))
    others = np.setdiff1d(np.arange(len(ALL)), few)
    given.price[others] = 1e6  # excluded from both searches
    assert objective(given, fitted(given)) <= brute_among(given, few) + SLACK


def brute_among(given: WindowArrays, few: np.ndarray) -> float:
    best = np.inf
    for chosen in itertools.combinations(few, 2):
        x = np.zeros(given.price.size)
        for first, second in itertools.product(np.arange(0.3, 0.61, 0.06), repeat=2):
            x[list(chosen)] = first, second
            best = min(best, objective(given, x))
    return best


def test_slowdowns_are_bounded() -> None:
    given = arrays(ALL, np.full(len(FABRIC), 50.0))
    assert fitted(given).max() <= MAX


def test_a_window_without_observations_has_no_slowdowns() -> None:
    assert not fitted(arrays(ALL, np.full(len(FABRIC), np.nan))).any()
