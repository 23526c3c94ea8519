"""How dear is it to say that weather slows the probes of a pair?

Over which cable a probe leaves its leaf is not known, but it shares that cable with every S-th of the other probes that
leave there.  If the cable is congested they are slow with it, since the same moment and by about as much.  If none is,

    P(nobody shares it) = (1 - 1/S)^(n - 1)        n probed pairs leave the leaf over S cables

is a witness against weather on the way up, the same on the way down, and weather is one of the two:

    nats = nats of weather + log 2 - log(P_up + P_down),    P = 1 where any other pair is slow alike
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import NOWHERE, Fabric, Floats, Ints
from faults.localisation.probes import Probes, Reading, Ways

LOUD = 6.0  # scales, from which a probe is slow for more than noise
ALIKE, UNEVEN = 0.08, 0.1  # log slowdown, and share of it: by how much probes over one cable differ
TOGETHER = 1  # windows
LEAST = np.exp(-6.0)  # hashing is not even


class Cables(NamedTuple):
    """Per pair: the leaf it leaves and the one it reaches, and the chances that nobody shares its cables there."""

    begin: Ints
    end: Ints
    alone_up: Floats
    alone_down: Floats


def cables(fabric: Fabric, pair: NDArray[np.int32], ways: Ways) -> Cables:
    """Of a fabric; where it knows no paths, nobody can be a witness."""
    pairs = ways.away.size
    source, target = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    source[pair], target[pair] = fabric.source, fabric.target
    begin, end = fabric.leaf[source], fabric.leaf[target]
    up = _alone(begin, ways.away, fabric.leaf[fabric.source], fabric.up)
    down = _alone(end, ways.away, fabric.leaf[fabric.target], fabric.down)
    return Cables(begin, end, up, down)


def _alone(leaf: Ints, away: NDArray[np.bool_], of_edge: Ints, cable: Ints) -> Floats:
    """Per pair."""
    known = (cable != NOWHERE) & (of_edge != NOWHERE)
    size = int(max(leaf.max(), of_edge.max())) + 2
    _, first = np.unique(cable[known], return_index=True)
    count = np.bincount(of_edge[known][first] + 1, minlength=size)
    others = np.bincount(leaf[away] + 1, minlength=size) - 1
    chance = np.where(count > 0, (1.0 - 1.0 / np.maximum(count, 1)) ** np.maximum(others, 0), 1.0)
    return np.maximum(chance, LEAST)[leaf + 1]


def nats(of: Cables, ways: Ways, reading: Reading | None, probes: Probes) -> Floats:
    """Per pair: most that its probes may say for a link."""
    near, away = probes.strange.nats(ways.first_away)
    most = np.where(ways.away, away, near)
    if reading is None:
        return most
    loud = np.flatnonzero(ways.away & (reading.residual > LOUD * reading.scale))
    up = np.where(_alike(of.begin[loud], reading.residual[loud], probes.run[loud]), 1.0, of.alone_up[loud])
    down = np.where(_alike(of.end[loud], reading.residual[loud], probes.run[loud]), 1.0, of.alone_down[loud])
    most[loud] += np.log(2.0) - np.log(up + down)
    return most


def _alike(leaf: Ints, slow: Floats, run: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether another of the same leaf is as slow since the same moment."""
    order = np.lexsort((slow, leaf))
    leaf, slow, since = leaf[order], slow[order], run[order].astype(np.int64)
    found = np.zeros(order.size, bool)
    for apart in range(1, order.size):
        near = (leaf[apart:] == leaf[:-apart]) & (slow[apart:] - slow[:-apart] <= ALIKE + UNEVEN * slow[:-apart])
        if not near.any():
            break
        near &= np.abs(since[apart:] - since[:-apart]) <= TOGETHER
        found[apart:] |= near
        found[:-apart] |= near
    back = np.empty(order.size, bool)
    back[order] = found
    return back
