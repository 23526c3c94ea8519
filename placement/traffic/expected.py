"""The exact expected number of remote nodes per token, over all sources.

docs/explanation/placement/traffic.md has the formula.  DeepEP sends a token once to each node that holds one of its
experts, however many.  Copies are chosen independently, except under `hash`: see `token_costs`.
"""

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import RULES, Dispatch
from placement.layout import Layout
from placement.token_trace import TokenTrace

SEVERAL = -1  # instead of a home node


def copies_on_nodes(expert_of_slot: Ints, *, experts: int, layout: Layout) -> Ints:
    """[layers, experts, nodes]."""
    layers, nodes = len(expert_of_slot), layout.nodes
    rows = np.arange(layers)[:, np.newaxis] * experts
    places = (expert_of_slot + rows) * nodes + layout.node_of_slot
    return np.bincount(places.ravel(), minlength=layers * experts * nodes).reshape(layers, experts, nodes)


def shares_of_nodes(expert_of_slot: Ints, *, experts: int, layout: Layout) -> Floats:
    """[layers, experts, nodes]: the part of an expert's copies that lies on each node."""
    copies = copies_on_nodes(expert_of_slot, experts=experts, layout=layout)
    shares: Floats = copies / np.maximum(copies.sum(axis=2, keepdims=True), 1)
    return shares


def traffic_cost(
    expert_of_slot: Ints, trace: TokenTrace, *, layout: Layout, rule: Dispatch, cost: Floats | None = None
) -> Floats:
    """[layers]: expected cost of one token of the trace; `cost` [nodes, nodes] by source and destination.

    Without `cost` each remote node costs 1.
    """
    from placement.traffic.token_costs import (  # noqa: PLC0415 - compiles on import
        copies_in_order,
        costs,
        hashed_costs,
    )

    if trace.layers != len(expert_of_slot):
        raise RuleError([(("trace",), f"must have the placement's layers ({len(expert_of_slot)}), got {trace.layers}")])
    shares = shares_of_nodes(expert_of_slot, experts=trace.experts_per_layer, layout=layout)
    by_source = weighted(cost, layout=layout)
    if rule is Dispatch.HASH:
        first, nodes = copies_in_order(
            expert_of_slot, experts=trace.experts_per_layer, node_of_slot=layout.node_of_slot
        )
        return hashed_costs(trace.experts, first, nodes, by_source.sum(axis=0))
    return costs(
        trace.experts,
        shares,
        np.where(shares.max(axis=2) == 1.0, shares.argmax(axis=2), SEVERAL).astype(np.int64),
        by_source,
        by_source.sum(axis=0),
        RULES[rule],
    )


def remote_nodes(expert_of_slot: Ints, trace: TokenTrace, *, layout: Layout, rule: Dispatch) -> Floats:
    """[layers]: expected number of remote nodes per token."""
    return traffic_cost(expert_of_slot, trace, layout=layout, rule=rule)


def weighted(cost: Floats | None, *, layout: Layout) -> Floats:
    """[sources, nodes]: cost times the part of all tokens that comes from each source."""
    nodes = layout.nodes
    given = 1.0 - np.eye(nodes) if cost is None else np.asarray(cost, dtype=np.float64)
    if given.shape != (nodes, nodes) or not np.isfinite(given).all() or (given < 0).any():
        raise RuleError([(("cost",), f"must be {nodes} x {nodes} finite numbers, none below 0")])
    sources = np.bincount(layout.node_of_gpu, minlength=nodes) / layout.gpus
    return np.ascontiguousarray(sources[:, np.newaxis] * given)
