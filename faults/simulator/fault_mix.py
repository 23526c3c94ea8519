"""Which faults come how often, and which look-alikes among them: the public mix, as a diary of one job.

Shares of harmful episodes: C4's month on 4,096 GPUs and Llama 3's 54 days on 16,384 for what crashes, Greyhound for
what slows.  Negatives: at least ten for each fault.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import SLOW, Happening, What

Rng = np.random.Generator
PUBLIC: Mapping[What, float] = MappingProxyType(
    {
        What.CRASH: 40.0,
        What.HANG_CODE: 12.0,
        What.HANG_NODE: 9.0,
        What.HANG_LINK: 6.0,
        What.SLOW_TX: 4.0,
        What.SLOW_RX: 4.0,
        What.SLOW_NIC: 2.0,
        What.SLOW_NODE: 2.0,
        What.SLOW_LINK: 8.0,
        What.STRAGGLER: 8.0,
        What.LEAF: 3.0,
        What.UPLINK: 1.0,
    }
)
SLOW_ONES: Mapping[What, float] = MappingProxyType(
    {what: share for what, share in PUBLIC.items() if what in SLOW or what is What.STRAGGLER}
)
NEGATIVES: Mapping[What, float] = MappingProxyType(
    {What.FOREIGN: 4.0, What.IMBALANCE: 3.0, What.HICCUP: 4.0, What.CHECKPOINT: 1.0, What.SILENCE: 1.0}
)
FACTORS, FACTOR_SHARES = (1.25, 1.5, 2.0, 4.0), (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class Mix:
    """Faults one after the other, `together` of them at once in a share `crowded` of episodes."""

    shares: Mapping[What, float] = field(default_factory=lambda: PUBLIC)
    crowded: float = 0.02
    together: tuple[int, int] = (2, 8)
    factors: tuple[float, ...] = FACTORS
    factor_shares: tuple[float, ...] = FACTOR_SHARES
    lasting_s: float = 60.0
    rest_s: float = 45.0  # between the end of one and the beginning of the next, on average
    first_s: float = 1.0  # the first begins within so long of the start
    negatives: float = 10.0  # per fault


def drawn(cluster: Cluster, mix: Mix, *, until_s: float, rng: Rng) -> list[Happening]:
    """A diary: faults by the mix up to `until_s`, and their negatives at any time."""
    faults: list[Happening] = []
    from_s = float(rng.uniform(0.0, mix.first_s))
    while mix.shares and from_s < until_s:
        count = int(rng.integers(mix.together[0], mix.together[1] + 1)) if rng.random() < mix.crowded else 1
        shares = mix.shares if count == 1 else {w: s for w, s in mix.shares.items() if w not in _ALONE} or mix.shares
        faults += _together(cluster, mix, shares, count=count, from_s=from_s, rng=rng)
        from_s += mix.lasting_s + float(rng.exponential(mix.rest_s)) + _APART_S
    count = int(rng.poisson(mix.negatives * len(faults)))
    return faults + negatives(cluster, count=count, until_s=until_s, rng=rng)


def _together(
    cluster: Cluster, mix: Mix, shares: Mapping[What, float], *, count: int, from_s: float, rng: Rng
) -> list[Happening]:
    """Several at once hit different nodes: of two on one node nobody could ask for both names."""
    kinds, weights = list(shares), np.array(list(shares.values()))
    found: list[Happening] = []
    taken: set[int] = set()
    while len(found) < count:
        what = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        begin_s = from_s + (float(rng.uniform(0.0, 5.0)) if found else 0.0)
        factor = float(rng.choice(mix.factors, p=mix.factor_shares))
        lasting_s = max(mix.lasting_s, UPLINK_S) if what is What.UPLINK else mix.lasting_s
        one = fault(cluster, what, from_s=begin_s, to_s=from_s + lasting_s, factor=factor, rng=rng)
        touched = nodes_of(cluster, one)
        if not touched & taken:
            taken |= touched
            found.append(one)
    return found


def fault(cluster: Cluster, what: What, *, from_s: float, to_s: float, factor: float, rng: Rng) -> Happening:
    """One fault of a kind, somewhere."""
    shape, fabric = cluster.shape, cluster.fabric
    at, to = int(rng.integers(shape.nodes)), -1
    if what in (What.SLOW_LINK, What.HANG_LINK):
        edge = int(rng.integers(len(fabric)))
        at, to = int(fabric.source[edge]), int(fabric.target[edge])
    elif what in (What.SLOW_TX, What.SLOW_RX, What.SLOW_NIC):
        at = int(rng.integers(shape.ranks))
    elif what is What.LEAF:
        at = int(rng.integers(shape.leaves))
    elif what is What.UPLINK:
        used = np.concatenate([fabric.up[fabric.up >= 0], fabric.down[fabric.down >= 0]])
        at = int(rng.choice(used))
    return Happening(what=what, at=at, to=to, from_s=from_s, to_s=to_s, factor=factor)


def nodes_of(cluster: Cluster, one: Happening) -> set[int]:
    """The nodes that a fault is on or at: two of a link, all behind a leaf."""
    fabric = cluster.fabric
    if one.what in (What.SLOW_LINK, What.HANG_LINK):
        return {int(fabric.node[one.at]), int(fabric.node[one.to])}
    if one.what in (What.SLOW_TX, What.SLOW_RX, What.SLOW_NIC):
        return {int(fabric.node[one.at])}
    if one.what is What.LEAF:
        return {int(node) for node in np.unique(fabric.node[fabric.leaf == one.at])}
    return set() if one.what is What.UPLINK else {one.at}


def negatives(cluster: Cluster, *, count: int, until_s: float, rng: Rng) -> list[Happening]:
    """What looks like a fault, anywhere, at any time."""
    kinds, weights = list(NEGATIVES), np.array(list(NEGATIVES.values()))
    chosen = rng.choice(len(kinds), size=count, p=weights / weights.sum())
    return [one for at in chosen for one in _MAKE[kinds[int(at)]](cluster, float(rng.uniform(0.0, until_s)), rng)]


def _foreign(cluster: Cluster, from_s: float, rng: Rng) -> list[Happening]:
    at = int(rng.integers(cluster.shape.ranks))
    to = int((at + cluster.shape.per_node * rng.integers(1, cluster.shape.nodes)) % cluster.shape.ranks)
    lasting_s = float(min(300.0, 20.0 * rng.lognormal(0.0, 0.8)))
    return [Happening(What.FOREIGN, at, from_s, from_s + lasting_s, float(rng.uniform(1.2, 2.0)), to)]


def _imbalance(cluster: Cluster, from_s: float, rng: Rng) -> list[Happening]:
    replica, lasting_s = int(rng.integers(cluster.shape.replicas)), float(rng.uniform(30.0, 300.0))
    return [Happening(What.IMBALANCE, replica, from_s, from_s + lasting_s, float(rng.uniform(1.05, 1.3)))]


def _hiccup(cluster: Cluster, from_s: float, rng: Rng) -> list[Happening]:
    node, lasting_s = int(rng.integers(cluster.shape.nodes)), float(min(10.0, 1.0 + rng.exponential(3.0)))
    return [Happening(What.HICCUP, node, from_s, from_s + lasting_s, float(rng.uniform(1.1, 2.0)))]


def _checkpoint(cluster: Cluster, from_s: float, rng: Rng) -> list[Happening]:
    del cluster  # all of it
    still_s, writing_s = float(rng.uniform(2.0, 15.0)), float(rng.uniform(10.0, 40.0))
    resumed_s = from_s + still_s
    return [
        Happening(What.PAUSE, 0, from_s, resumed_s),
        Happening(What.CHECKPOINT, 0, resumed_s, resumed_s + writing_s, float(rng.uniform(1.1, 1.6))),
    ]


def _silence(cluster: Cluster, from_s: float, rng: Rng) -> list[Happening]:
    pod = int(rng.integers(cluster.shape.pods))
    return [Happening(What.SILENCE, pod, from_s, from_s + float(rng.uniform(10.0, 60.0)))]


_MAKE: Mapping[What, Callable[[Cluster, float, Rng], list[Happening]]] = MappingProxyType(
    {
        What.FOREIGN: _foreign,
        What.IMBALANCE: _imbalance,
        What.HICCUP: _hiccup,
        What.CHECKPOINT: _checkpoint,
        What.SILENCE: _silence,
    }
)
_ALONE = frozenset({What.HANG_CODE, What.HANG_NODE, What.HANG_LINK, What.CRASH})  # they stop the traffic of all others
UPLINK_S = 900.0  # a bad cable stays until it is replaced; what is over sooner cannot be told from others' traffic
_APART_S = 20.0
