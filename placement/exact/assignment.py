"""MoETuner's second program (arXiv 2502.06643): clusters onto GPUs, so that tokens change GPUs over fast links.

docs/placement/exact.md, section 7.  The time counted is that of the slowest pair of GPUs between each layer and the
next, as an all-to-all waits for it.  A copy carries its equal share of its expert's tokens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import factorial

import numpy as np

from fleet.documents import RuleError, Violation
from fleet.solvers import Limits, Solver, SolverError, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.assignment_model import AssignmentModel, OrderModel, ProductModel
from placement.exact.assignment_rows import least_tail_by_orders, least_tail_by_products
from placement.exact.exchange import Exchange, Held, exchange_times_s, tails_s
from placement.exact.program import Certificate

MIN_GAIN = 1e-6  # of the time
MAX_MOVES = 60_000  # between orders of clusters; beyond it pairs of clusters are the smaller program


@dataclass(frozen=True, eq=False)
class Assignment:
    """Which GPU each cluster lies on, and how long exchanges then take."""

    gpu_of_cluster: Ints  # [layers, clusters]
    tails_s: Floats  # [layers - 1]: of the slowest pair, from each layer to the next
    proof: Certificate  # of their sum, s

    def held(self, clustered: Held) -> Held:
        """[layers, experts, GPUs]: where copies lie, of [layers, experts, clusters]."""
        placed = np.zeros_like(clustered)
        for layer, gpus in enumerate(self.gpu_of_cluster):
            placed[layer][:, gpus] = clustered[layer]
        return placed


def assigned(
    clustered: Held,
    routing: Floats,
    *,
    token_bytes: float,
    bandwidth_gb_per_s: Floats,
    limits: Limits,
    copies_of_gpu: int | None = None,
    solver: Solver = Solver.HIGHS,
) -> Assignment:
    """Of clusters [layers, experts, clusters], tokens [layers - 1, experts, experts] from each expert to each of the
    next layer, and bandwidths [GPUs, GPUs].  `copies_of_gpu`, over all layers, is by default as even as it can be.
    """
    RuleError.raise_for(_violations(clustered, routing, bandwidth_gb_per_s))
    sizes: Ints = clustered.sum(axis=1)
    most = -(-int(sizes.sum()) // sizes.shape[1]) if copies_of_gpu is None else copies_of_gpu
    exchange = Exchange(
        times_s=exchange_times_s(clustered, routing, token_bytes=token_bytes, bandwidth_gb_per_s=bandwidth_gb_per_s),
        sizes=sizes,
        copies_of_gpu=most,
        alike=_all_alike(bandwidth_gb_per_s),
    )
    return _solved(exchange, solver=solver, limits=limits)


def levelled(exchange: Exchange) -> Ints | None:
    """Clusters to GPUs in turn, the largest to where the fewest copies are; None where memory does not allow it."""
    taken = np.zeros(exchange.clusters, dtype=np.int64)
    rows = []
    for sizes in exchange.sizes:
        gpus = np.empty(exchange.clusters, dtype=np.int64)
        gpus[np.argsort(-sizes, kind="stable")] = np.argsort(taken, kind="stable")
        taken[gpus] += sizes
        rows.append(gpus)
    return np.array(rows) if taken.max() <= exchange.copies_of_gpu else None


def _solved(exchange: Exchange, *, solver: Solver, limits: Limits) -> Assignment:
    start = _start(exchange)
    begun_s = np.inf if start is None else float(tails_s(exchange, start).sum())
    if start is not None and begun_s <= 0:
        return _assignment(exchange, start, bound_s=0.0, status=SolveStatus.OPTIMAL)
    ceiling_s = None if start is None else begun_s * (1 - MIN_GAIN)
    model = _program(exchange, ceiling_s)
    outcome = model.program.run(solver=solver, limits=limits)
    if outcome.status is SolveStatus.INFEASIBLE:
        if start is None:
            fault = ("copies_of_gpu",), f"no assignment keeps every GPU to {exchange.copies_of_gpu} copies"
            raise RuleError([fault])
        return _assignment(exchange, start, bound_s=begun_s * (1 - MIN_GAIN), status=SolveStatus.OPTIMAL)
    bound_s = max(0.0, min(outcome.bound * exchange.unit_s, begun_s))
    if outcome.status.has_mix:
        return _assignment(exchange, model.found(), bound_s=bound_s, status=outcome.status)
    if start is None:
        raise SolverError(f"{solver}: no assignment found within {limits.time_limit_s:g} s")
    return _assignment(exchange, start, bound_s=bound_s, status=SolveStatus.FEASIBLE)


def _program(exchange: Exchange, ceiling_s: float | None) -> AssignmentModel:
    """Over orders where there are few: their relaxation is a shortest path, and only memory makes it fractional."""
    if factorial(exchange.clusters) ** 2 * exchange.layers <= MAX_MOVES:
        return least_tail_by_orders(OrderModel.of(exchange, ceiling_s=ceiling_s))
    return least_tail_by_products(ProductModel.of(exchange, ceiling_s=ceiling_s))


def _start(exchange: Exchange) -> Ints | None:
    """The better of two simple ones that fit: all clusters where they are, and memory levelled."""
    identity = np.tile(np.arange(exchange.clusters), (exchange.layers, 1))
    fits = exchange.sizes.sum(axis=0).max() <= exchange.copies_of_gpu
    simple = [identity] if fits else []
    level = levelled(exchange)
    simple += [level] if level is not None else []
    return min(simple, key=lambda rows: float(tails_s(exchange, rows).sum()), default=None)


def _assignment(exchange: Exchange, gpu_of_cluster: Ints, *, bound_s: float, status: SolveStatus) -> Assignment:
    found_s = tails_s(exchange, gpu_of_cluster)
    value_s = float(found_s.sum())
    return Assignment(gpu_of_cluster, found_s, Certificate(value_s, min(bound_s, value_s), status))


def _all_alike(bandwidth_gb_per_s: Floats) -> bool:
    """Whether every pair of GPUs has the same link."""
    apart = bandwidth_gb_per_s[~np.eye(len(bandwidth_gb_per_s), dtype=bool)]
    return bool(np.all(apart == apart[:1]))


def _violations(clustered: Held, routing: Floats, bandwidth_gb_per_s: Floats) -> Iterator[Violation]:
    layers, experts, gpus = clustered.shape
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "routing": (routing.shape, (layers - 1, experts, experts)),
        "bandwidth_gb_per_s": (bandwidth_gb_per_s.shape, (gpus, gpus)),
    }
    for field, (given, expected) in shapes.items():
        if given != expected:
            yield (field,), f"must have the shape {expected}, got {given}"
    if not np.isfinite(routing).all() or (routing < 0).any():
        yield ("routing",), "must be finite and at least 0"
    if not np.isfinite(bandwidth_gb_per_s).all() or (bandwidth_gb_per_s <= 0).any():
        yield ("bandwidth_gb_per_s",), "must be finite and above 0, also where it does not count (on the diagonal)"
