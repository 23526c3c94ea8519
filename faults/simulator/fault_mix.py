"""Rates of faults and look-alikes: the public mix, as the fault schedule of one job.

Shares of episodes: C4's month on 4,096 GPUs and Llama 3's 54 days on 16,384 for crashes, Greyhound for slow faults.  At
least ten look-alikes for each fault.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import HANGS, LINKS, NICS, SLOW, FaultEvent, FaultKind

Rng = np.random.Generator
PUBLIC: Mapping[FaultKind, float] = MappingProxyType(
    {
        FaultKind.CRASH: 40.0,
        FaultKind.HANG_CODE: 12.0,
        FaultKind.HANG_NODE: 9.0,
        FaultKind.HANG_LINK: 6.0,
        FaultKind.SLOW_TX: 4.0,
        FaultKind.SLOW_RX: 4.0,
        FaultKind.SLOW_NIC: 2.0,
        FaultKind.SLOW_NODE: 2.0,
        FaultKind.SLOW_LINK: 8.0,
        FaultKind.STRAGGLER: 8.0,
        FaultKind.LEAF: 3.0,
        FaultKind.UPLINK: 1.0,
    }
)
SLOW_SHARES: Mapping[FaultKind, float] = MappingProxyType(
    {kind: share for kind, share in PUBLIC.items() if kind in SLOW or kind is FaultKind.STRAGGLER}
)
NEGATIVES: Mapping[FaultKind, float] = MappingProxyType(
    {
        FaultKind.FOREIGN: 4.0,
        FaultKind.IMBALANCE: 3.0,
        FaultKind.HICCUP: 4.0,
        FaultKind.CHECKPOINT: 1.0,
        FaultKind.SILENCE: 1.0,
    }
)
APART_S = 20.0
UPLINK_S = 900.0  # a bad cable stays until it is replaced; a shorter one is indistinguishable from congestion
FACTORS, FACTOR_SHARES = (1.25, 1.5, 2.0, 4.0), (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class FaultMix:
    """Faults one after the other; in a share `congested` of the episodes, `together` faults at once."""

    shares: Mapping[FaultKind, float] = field(default_factory=lambda: PUBLIC)
    congested: float = 0.02
    together: tuple[int, int] = (2, 8)
    factors: tuple[float, ...] = FACTORS
    factor_shares: tuple[float, ...] = FACTOR_SHARES
    lasting_s: float = 60.0
    rest_s: float = 45.0  # mean time from the end of one fault to the start of the next
    first_s: float = 1.0  # the first fault begins within this time
    negatives: float = 10.0  # look-alikes per fault


def drawn(cluster: Cluster, mix: FaultMix, *, until_s: float, rng: Rng) -> list[FaultEvent]:
    """Draw the events of a job: faults by the mix up to `until_s`, and their look-alikes at any time."""
    faults: list[FaultEvent] = []
    from_s = float(rng.uniform(0.0, mix.first_s))
    while mix.shares and from_s < until_s:
        count = int(rng.integers(mix.together[0], mix.together[1] + 1)) if rng.random() < mix.congested else 1
        # Hangs stop the traffic of all others.
        shares = mix.shares if count == 1 else {w: s for w, s in mix.shares.items() if w not in HANGS} or mix.shares
        faults += _together(cluster, mix, shares, count=count, from_s=from_s, rng=rng)
        from_s += mix.lasting_s + float(rng.exponential(mix.rest_s)) + APART_S
    count = int(rng.poisson(mix.negatives * len(faults)))
    return faults + negatives(cluster, count=count, until_s=until_s, rng=rng)


def _together(
    cluster: Cluster, mix: FaultMix, shares: Mapping[FaultKind, float], *, count: int, from_s: float, rng: Rng
) -> list[FaultEvent]:
    """Faults at the same time hit different nodes: two faults of one node would need two diagnoses of it."""
    kinds, weights = list(shares), np.array(list(shares.values()))
    found: list[FaultEvent] = []
    taken: set[int] = set()
    while len(found) < count:
        kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        begin_s = from_s + (float(rng.uniform(0.0, 5.0)) if found else 0.0)
        factor = float(rng.choice(mix.factors, p=mix.factor_shares))
        lasting_s = max(mix.lasting_s, UPLINK_S) if kind is FaultKind.UPLINK else mix.lasting_s
        one = fault(cluster, kind, from_s=begin_s, to_s=from_s + lasting_s, factor=factor, rng=rng)
        touched = nodes_of(cluster, one)
        if not touched & taken:
            taken |= touched
            found.append(one)
    return found


def fault(cluster: Cluster, kind: FaultKind, *, from_s: float, to_s: float, factor: float, rng: Rng) -> FaultEvent:
    shape, fabric = cluster.shape, cluster.fabric
    at, to = int(rng.integers(shape.nodes)), -1
    if kind in LINKS:
        edge = int(rng.integers(len(fabric)))
        at, to = int(fabric.source[edge]), int(fabric.target[edge])
    elif kind in NICS:
        at = int(rng.integers(shape.ranks))
    elif kind is FaultKind.LEAF:
        at = int(rng.integers(shape.leaves))
    elif kind is FaultKind.UPLINK:
        used = np.concatenate([fabric.up[fabric.up >= 0], fabric.down[fabric.down >= 0]])
        at = int(rng.choice(used))
    return FaultEvent(kind=kind, at=at, to=to, from_s=from_s, to_s=to_s, factor=factor)


def nodes_of(cluster: Cluster, one: FaultEvent) -> set[int]:
    """Return the nodes of a fault: two of a link, all behind a leaf."""
    fabric = cluster.fabric
    if one.kind in LINKS:
        return {int(fabric.node[one.at]), int(fabric.node[one.to])}
    if one.kind in NICS:
        return {int(fabric.node[one.at])}
    if one.kind is FaultKind.LEAF:
        return {int(node) for node in np.unique(fabric.node[fabric.leaf == one.at])}
    return set() if one.kind is FaultKind.UPLINK else {one.at}


def negatives(cluster: Cluster, *, count: int, until_s: float, rng: Rng) -> list[FaultEvent]:
    kinds, weights = list(NEGATIVES), np.array(list(NEGATIVES.values()))
    chosen = rng.choice(len(kinds), size=count, p=weights / weights.sum())
    return [one for at in chosen for one in _MAKE[kinds[int(at)]](cluster, float(rng.uniform(0.0, until_s)), rng)]


def _foreign(cluster: Cluster, from_s: float, rng: Rng) -> list[FaultEvent]:
    at = int(rng.integers(cluster.shape.ranks))
    to = int((at + cluster.shape.per_node * rng.integers(1, cluster.shape.nodes)) % cluster.shape.ranks)
    lasting_s = float(min(300.0, 20.0 * rng.lognormal(0.0, 0.8)))
    return [FaultEvent(FaultKind.FOREIGN, at, from_s, from_s + lasting_s, float(rng.uniform(1.2, 2.0)), to)]


def _imbalance(cluster: Cluster, from_s: float, rng: Rng) -> list[FaultEvent]:
    replica, lasting_s = int(rng.integers(cluster.shape.replicas)), float(rng.uniform(30.0, 300.0))
    return [FaultEvent(FaultKind.IMBALANCE, replica, from_s, from_s + lasting_s, float(rng.uniform(1.05, 1.3)))]


def _hiccup(cluster: Cluster, from_s: float, rng: Rng) -> list[FaultEvent]:
    node, lasting_s = int(rng.integers(cluster.shape.nodes)), float(min(10.0, 1.0 + rng.exponential(3.0)))
    return [FaultEvent(FaultKind.HICCUP, node, from_s, from_s + lasting_s, float(rng.uniform(1.1, 2.0)))]


def _checkpoint(cluster: Cluster, from_s: float, rng: Rng) -> list[FaultEvent]:
    del cluster  # whole groups
    still_s, writing_s = float(rng.uniform(2.0, 15.0)), float(rng.uniform(10.0, 40.0))
    resumed_s = from_s + still_s
    return [
        FaultEvent(FaultKind.PAUSE, 0, from_s, resumed_s),
        FaultEvent(FaultKind.CHECKPOINT, 0, resumed_s, resumed_s + writing_s, float(rng.uniform(1.1, 1.6))),
    ]


def _silence(cluster: Cluster, from_s: float, rng: Rng) -> list[FaultEvent]:
    pod = int(rng.integers(cluster.shape.pods))
    return [FaultEvent(FaultKind.SILENCE, pod, from_s, from_s + float(rng.uniform(10.0, 60.0)))]


_MAKE: Mapping[FaultKind, Callable[[Cluster, float, Rng], list[FaultEvent]]] = MappingProxyType(
    {
        FaultKind.FOREIGN: _foreign,
        FaultKind.IMBALANCE: _imbalance,
        FaultKind.HICCUP: _hiccup,
        FaultKind.CHECKPOINT: _checkpoint,
        FaultKind.SILENCE: _silence,
    }
)
