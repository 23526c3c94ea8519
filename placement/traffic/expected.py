"""The exact expected number of remote nodes per token, over all sources.

DeepEP sends a token once to each node that holds one of its experts, however many.  For a token with experts K from a
GPU of node s, node n != s is reached with probability

    P(n | s) = 1 - prod over e in K' of (1 - f(e, n)),    f(e, n) = copies of e on n / copies of e

where K' is K under the rule `equal`, and under `nearest` K without the experts that have a copy on node s.  Copies are
chosen independently, except under `hash`: see `hashing`.  Sources weigh w(s) = GPUs of s / GPUs (attention is
data-parallel), and the cost is

    sum over s, n of w(s) * cost(s, n) * P(n | s)

With cost 1 off the diagonal this is the number of remote nodes.
"""

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import RULES, Dispatch
from placement.layout import Layout
from placement.token_trace import TokenTrace

SEVERAL = -1  # instead of a home node


def shares_of_nodes(expert_of_slot: Ints, *, experts: int, layout: Layout) -> Floats:
    """[layers, experts, nodes]: the part of an expert's copies that lies on each node."""
    layers, nodes = len(expert_of_slot), layout.nodes
    rows = np.arange(layers)[:, np.newaxis] * experts
    places = (expert_of_slot + rows) * nodes + layout.node_of_slot
    copies = np.bincount(places.ravel(), minlength=layers * experts * nodes).reshape(layers, experts, nodes)
    shares: Floats = copies / np.maximum(copies.sum(axis=2, keepdims=True), 1)
    return shares


def traffic_cost(
    expert_of_slot: Ints, trace: TokenTrace, *, layout: Layout, rule: Dispatch, cost: Floats | None = None
) -> Floats:
    """[layers]: expected cost of one token of the trace; `cost` [nodes, nodes] by source and destination.

    Without `cost` each remote node costs 1.
    """
    from placement.traffic.counting import costs  # noqa: PLC0415 - compiles on import
    from placement.traffic.hashing import copies_in_order, hashed_costs  # noqa: PLC0415

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
        np.empty(trace.active, dtype=np.int64),
        np.empty(layout.nodes, dtype=np.int64),
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
