"""What small cases come to when everything is tried."""

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations, product

import numpy as np

from placement.arrays import Floats, Ints
from placement.exact.exchange import Exchange
from placement.layout import Layout


def every_placement(*, experts: int, layout: Layout) -> Iterator[Ints]:
    """Each way to fill one layer's slots, [1, slots]: all experts there, none twice on a GPU."""
    sets = [list(combinations(range(experts), int(slots))) for slots in layout.slots_of_gpu]
    for chosen in product(*sets):
        row = [expert for gpu in chosen for expert in gpu]
        if len(set(row)) == experts:
            yield np.array([row], dtype=np.int64)


def every_clustering(*, experts: int, clusters: int) -> Iterator[Ints]:
    """Each way to give every expert one cluster and leave none empty: [experts]."""
    for chosen in product(range(clusters), repeat=experts):
        if len(set(chosen)) == clusters:
            yield np.array(chosen)


def least_tail_s(exchange: Exchange) -> float:
    """Whatever memory allows, by trying all assignments of all layers."""
    orders = list(permutations(range(exchange.clusters)))
    best_s = np.inf
    for rows in product(orders, repeat=exchange.layers):
        if _memory(exchange, rows) <= exchange.copies_of_gpu:
            best_s = min(best_s, sum(_tail_s(exchange, step, *pair) for step, pair in enumerate(pairwise(rows))))
    return float(best_s)


def fastest_path_s(exchange: Exchange) -> float:
    """Without the memory limit: the shortest path through the permutations of each layer (Viterbi, 1967)."""
    orders = list(permutations(range(exchange.clusters)))
    so_far: Floats = np.zeros(len(orders))
    for step in range(exchange.layers - 1):
        moves = np.array([[_tail_s(exchange, step, here, there) for there in orders] for here in orders])
        so_far = (so_far[:, None] + moves).min(axis=0)
    return float(so_far.min())


def _tail_s(exchange: Exchange, step: int, here: tuple[int, ...], there: tuple[int, ...]) -> float:
    pairs = product(enumerate(here), enumerate(there))
    return max(float(exchange.times_s[step, c, d, g, h]) for (c, g), (d, h) in pairs)


def _memory(exchange: Exchange, rows: tuple[tuple[int, ...], ...]) -> int:
    taken = np.zeros(exchange.clusters, dtype=np.int64)
    for sizes, gpus in zip(exchange.sizes, rows, strict=True):
        taken[list(gpus)] += sizes
    return int(taken.max())
