"""The placement with the least traffic between nodes, at an imbalance under a ceiling.

docs/explanation/placement/traffic.md.  Each layer gets a front of placements (`annealing`), from loose to tight limits
on the load of nodes, each packed onto GPUs (`packing`).  One choice over all layers selects a placement of each
(`knapsack`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic.expected import traffic_cost, weighted
from placement.traffic.initial_partition import (
    MAX_SUM,
    SCALE,
    Nodes,
    Start,
    carried,
    groups_of,
    initial_start,
    used,
    weights,
    with_capacity,
)
from placement.traffic.knapsack import chosen
from placement.traffic.local_search import Target, improve, is_small, spread_over_nodes
from placement.validation import check_capacity, check_slots

LIMITS = (1.5, 1.0, 0.3)  # of the ceiling's distance from 1, for nodes
HEATS = ((2e-4, 2e-5), (5e-5, 1e-5), (5e-5, 1e-5))  # cost per token, from and to, at each limit
CARRIED = (0.75, 0.6)  # of a GPU's part, maximum load of a copy: hotter experts get more copies: fewer slots are left
PROPOSALS = 80  # per expert and limit
MAX_CEILING = 1e3
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class _Problem(Target):
    nodes: Nodes
    cost: Floats  # [sources, nodes], weighted by source
    proposals: int
    seed: int


def minimise_traffic(
    tokens: Floats,
    trace: TokenTrace,
    *,
    layout: Layout,
    rule: Dispatch,
    ceiling: float,
    seed: int = 0,
    start: Ints | None = None,
    cost: Floats | None = None,
) -> Ints:
    """[layers, slots]: the least traffic found at a mean imbalance up to `ceiling` under `rule`.

    Loads [layers, experts] decide the balance, the trace the traffic.  With a start that keeps the ceiling, the result
    never has more traffic; with `cost`, never more cost than without.  Under `nearest` copies lie on different nodes
    where possible, except in a start that is itself the result.  Where nothing keeps the ceiling: the
    most even placement found.
    """
    RuleError.raise_for(_violations(tokens, trace, ceiling))
    check_capacity(experts=tokens.shape[1], layout=layout)
    if start is not None:
        check_slots(start, experts=tokens.shape[1], layout=layout)
    by_source, proposals = weighted(cost, layout=layout), PROPOSALS * tokens.shape[1]
    problem = _Problem(layout, rule, cost, ceiling, Nodes.of(layout), by_source, proposals, seed)
    shares = np.ascontiguousarray(tokens / tokens.sum(axis=1, keepdims=True))
    candidates = [
        _layer_candidates(shares[layer], np.ascontiguousarray(trace.experts[:, layer]), problem, layer)
        for layer in range(len(tokens))
    ]
    others = [] if start is None else [start]
    if cost is not None:
        others.append(
            minimise_traffic(tokens, trace, layout=layout, rule=rule, ceiling=ceiling, seed=seed, start=start)
        )
    for placement in others:
        _add(candidates, placement, tokens, problem)
    found, mean = _best(candidates, tokens, trace, problem)
    if mean > ceiling + ROUNDING:
        _add(candidates, _evenest(tokens, layout=layout, rule=rule), tokens, problem)
        found, _ = _best(candidates, tokens, trace, problem)
    if is_small(trace.experts[:, 0], experts=tokens.shape[1], layout=layout):
        _add_polished(candidates, tokens, trace, problem)
        found, _ = _best(candidates, tokens, trace, problem)
    for other in others:
        found = _no_worse(found, other, tokens, trace, problem)
    return found


def _add_polished(candidates: list[list[Ints]], tokens: Floats, trace: TokenTrace, problem: _Problem) -> None:
    for layer, found in enumerate(candidates):
        experts = np.ascontiguousarray(trace.experts[:, layer])
        different = {tuple(row.tolist()): row for row in found}
        found += [improve(row, tokens[layer], experts, problem) for row in different.values()]


def _add(candidates: list[list[Ints]], placement: Ints, tokens: Floats, problem: _Problem) -> None:
    """One more candidate per layer, under `nearest` with copies on different nodes."""
    apart = problem.rule is Dispatch.NEAREST
    for found, row, loads in zip(candidates, placement, tokens, strict=True):
        found.append(spread_over_nodes(row, loads, layout=problem.layout) if apart else row)


def _evenest(tokens: Floats, *, layout: Layout, rule: Dispatch) -> Ints:
    from placement.balance import balanced  # noqa: PLC0415 - compiles on use
    from placement.nearest import balanced_nearest  # noqa: PLC0415

    return (balanced_nearest if rule is Dispatch.NEAREST else balanced)(tokens, layout=layout)


def _best(candidates: list[list[Ints]], tokens: Floats, trace: TokenTrace, problem: _Problem) -> tuple[Ints, float]:
    most = max(len(found) for found in candidates)
    imbalances, costs = np.full((len(tokens), most), np.inf), np.full((len(tokens), most), np.inf)
    for at in range(most):
        rows = [layer for layer, found in enumerate(candidates) if at < len(found)]
        made = np.stack([candidates[layer][at] for layer in rows])
        part = TokenTrace(np.ascontiguousarray(trace.experts[:, rows]), trace.experts_per_layer)
        imbalances[rows, at] = imbalance(made, tokens[rows], layout=problem.layout, rule=problem.rule).per_layer
        costs[rows, at] = traffic_cost(made, part, layout=problem.layout, rule=problem.rule, cost=problem.given_cost)
    if not np.isfinite(costs).any(axis=1).all():
        return np.empty((0, 0), dtype=np.int64), np.inf
    picked = chosen(imbalances, costs, ceiling=problem.ceiling)
    mean = float(imbalances[np.arange(len(picked)), picked].mean())
    return np.stack([candidates[layer][choice] for layer, choice in enumerate(picked)]), mean


def _no_worse(found: Ints, other: Ints, tokens: Floats, trace: TokenTrace, problem: _Problem) -> Ints:
    """The other placement, where it keeps the ceiling and costs less."""
    layout, rule = problem.layout, problem.rule
    if imbalance(other, tokens, layout=layout, rule=rule).mean > problem.ceiling + ROUNDING:
        return found
    before = traffic_cost(other, trace, layout=layout, rule=rule, cost=problem.given_cost).sum()
    after = traffic_cost(found, trace, layout=layout, rule=rule, cost=problem.given_cost).sum()
    return other if before < after else found


def _layer_candidates(loads: Floats, trace: Experts, problem: _Problem, layer: int) -> list[Ints]:
    """Placements of one layer, [slots] each."""
    found: list[Ints] = []
    done: list[Start] = []
    groups = groups_of(trace, experts=len(loads))
    for most in CARRIED:
        start = initial_start(
            loads,
            trace,
            groups=groups,
            cost=problem.cost.sum(axis=0),
            layout=problem.layout,
            rule=problem.rule,
            carried=most,
        )
        if not any(start.same_as(other) for other in done):
            found += _front(loads, trace, start, problem, layer)
            done.append(start)
    return found


def _front(loads: Floats, trace: Experts, start: Start, problem: _Problem, layer: int) -> list[Ints]:
    """One candidate per limit, from one start."""
    from placement.traffic import annealing  # noqa: PLC0415 - compiles on import
    from placement.traffic.packing import copies_of, packed  # noqa: PLC0415 - likewise

    nodes, rule = problem.nodes, problem.rule
    home = with_capacity(start, loads, nodes)
    if home is None:
        return []
    highest = float(problem.cost.sum(axis=0).max()) or 1.0
    scale = min(SCALE, MAX_SUM / len(trace))
    limits = np.array([[1 + part * (problem.ceiling - 1)] for part in LIMITS]) * nodes.shares
    found = annealing.front(
        # temperatures and the price of load assume costs around 1
        annealing.Cut.of(trace, home, weights(trace, home, start, problem.cost / highest, scale=scale, rule=rule)),
        annealing.Nodes(
            loads,
            start.least,
            nodes.slots,
            carried(home, start, loads, nodes, rule=rule),
            used(home, start, nodes),
        ),
        limits,
        np.array(HEATS),
        scale * len(trace),
        problem.proposals,
        np.random.SeedSequence([problem.seed, layer]).generate_state(1, np.uint64) | np.uint64(1),
    )
    rows = (packed(copies_of(home, start), loads, layout=problem.layout, rule=rule) for home in found)
    return [row for row in rows if row is not None]


def _violations(tokens: Floats, trace: TokenTrace, ceiling: float) -> Iterator[Violation]:
    layers, experts = tokens.shape
    if trace.layers != layers or trace.experts_per_layer != experts:
        wanted, got = f"{layers} layers with {experts} experts", f"{trace.layers} with {trace.experts_per_layer}"
        yield ("trace",), f"must be of {wanted}, got {got}"
    if not 1 <= ceiling <= MAX_CEILING:
        yield ("max_imbalance",), f"must be from 1 to {MAX_CEILING:g}, got {ceiling:g}"
