"""Random placements and loads, and exhaustive search over the migrations of a small one."""

import itertools
from collections import deque
from collections.abc import Iterator

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import moved_copies


def placement(rng: np.random.Generator, *, layers: int, experts: int, layout: Layout) -> Ints:
    """A random legal placement."""
    return np.stack([_row(rng, experts, layout) for _ in range(layers)])


def loads(rng: np.random.Generator, *, layers: int, experts: int, skew: float = 0.8) -> Floats:
    """Lognormal tokens."""
    return np.ascontiguousarray(np.exp(skew * rng.standard_normal((layers, experts))) * 1000)


def drifted(rng: np.random.Generator, tokens: Floats, *, by: float = 0.3) -> Floats:
    """The same loads some time later."""
    return tokens * np.exp(by * rng.standard_normal(tokens.shape))


def fewest_moves(before: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch, ceiling: float) -> int | None:
    """The fewest moved copies over all legal placements of one layer, or None where none is within the ceiling."""
    legal = np.array(list(_legal(layout, tokens.shape[1])), dtype=np.int64)
    weights = np.repeat(tokens, len(legal), axis=0)
    even = imbalance(legal, weights, layout=layout, rule=rule).per_layer <= ceiling + 1e-9
    moves = [moved_copies(before, row[np.newaxis], layout=layout) for row in legal[even]]
    return min(moves) if moves else None


def _legal(layout: Layout, experts: int) -> Iterator[tuple[int, ...]]:
    """Slots of a GPU in ascending order, because their order does not matter."""
    choices = [itertools.combinations(range(experts), int(slots)) for slots in layout.slots_of_gpu]
    for held in itertools.product(*choices):
        row = tuple(itertools.chain.from_iterable(held))
        if len(set(row)) == experts:
            yield row


def _row(rng: np.random.Generator, experts: int, layout: Layout) -> Ints:
    while True:
        capacity = deque(rng.permutation(layout.gpus).tolist())
        held: list[list[int]] = [[] for _ in range(layout.gpus)]
        spare = rng.integers(experts, size=layout.slots - experts).tolist()
        for expert in [*rng.permutation(experts).tolist(), *spare]:
            for _ in range(len(capacity)):
                capacity.rotate(-1)
                if len(held[capacity[0]]) < layout.slots_of_gpu[capacity[0]] and expert not in held[capacity[0]]:
                    held[capacity[0]].append(expert)
                    break
        if sum(map(len, held)) == layout.slots:
            return np.array(list(itertools.chain.from_iterable(held)), dtype=np.int64)
