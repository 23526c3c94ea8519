"""The edges of a job, settled after a few windows, and their values in a window: log (usual / now).

The usual here is the kind's, the median while learning; the localiser learns an edge's own difference.  The bytes of an
edge, which in a bulk-synchronous job do not depend on its speed, determine its kind.
docs/explanation/faults/localisation.md, "Live jobs"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.detector import Job
from faults.fabric import NOWHERE, Fabric, Floats, Traffic, Window
from faults.large_jobs.settings import LargeJobSettings
from faults.observations import Observation, Probe, Socket

OUTSIDE: Final = -1  # the peer for all hosts outside the job

Pair = tuple[int, int]
TICK_US: Final = 4000.0  # the step of busy time at 250 Hz
LONG: Final = 0.5  # of the bytes of the busiest: a ring's edge
SHORT: Final = 0.125  # less than that: a small one
BUSIEST: Final = 0.9  # quantile
MIN_EDGES: Final = 8  # edges, below which there are no peers to compare with


@dataclass(slots=True)
class Sum:
    bytes: int = 0
    busy_us: int = 0
    connections: int = 0  # the largest number


@dataclass(slots=True)
class _Counters:
    at_s: float
    bytes: int
    busy_us: int


class Pairs:
    """Counters of all pairs, summed by windows:  bandwidth = 8 x bytes acknowledged / busy time  [Mbit/s, busy in us].

    A difference between two polls counts in the window of the second.  Bytes and busy time are cut at the same poll, so
    the bandwidth does not depend on where; a counter that falls was opened again, and counts from there.
    """

    def __init__(self, nodes: int, most: int) -> None:
        self._nodes, self._most = nodes, most
        self._newest: dict[Pair, _Counters] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def take(self, observation: Observation, socket: Socket, sums: dict[Pair, Sum]) -> None:
        peer = OUTSIDE if observation.peer is None else observation.peer
        if not OUTSIDE <= peer < self._nodes:
            return
        pair = (observation.node, peer)
        carried = socket.acked_bytes + (socket.received_bytes if peer == OUTSIDE else 0)
        before = self._newest.get(pair)
        if before is None:
            if len(self._newest) < self._most:
                self._newest[pair] = _Counters(observation.at_s, carried, socket.busy_us)
            return
        if observation.at_s <= before.at_s:
            return
        moved, busy_us = carried - before.bytes, socket.busy_us - before.busy_us
        before.at_s, before.bytes, before.busy_us = observation.at_s, carried, socket.busy_us
        total = sums.get(pair)
        if total is None:
            total = sums[pair] = Sum()
        total.connections = max(total.connections, socket.connections)
        if moved >= 0 and busy_us >= 0:
            total.bytes += moved
            total.busy_us += busy_us


class Trains(dict[Pair, tuple[int, float]]):
    """The number of probes of each pair in one window, and the seconds of the fastest, which met no other bytes.

    The receiver's own spacing of a train needs no second clock; without it the transit time is used, and the usual of
    the pair absorbs a constant clock offset.
    """

    def take(self, observation: Observation, probe: Probe) -> None:
        took_s = probe.received_s - probe.sent_s if probe.tail_s is None else probe.tail_s
        if observation.peer is None or not took_s > 0.0:  # an impossible time
            return
        count, min_s = self.get((observation.peer, observation.node), (0, took_s))
        self[observation.peer, observation.node] = count + 1, min(min_s, took_s)


Sums = Mapping[Pair, Sum]


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges of a job, in the order of the fabric, and the traffic of each in a window."""

    fabric: Fabric
    at: Mapping[Pair, int]
    usual_mbit: Floats  # of its kind
    usual_bytes: Floats
    connections: Floats
    fastest_mbit: float
    outside_bytes: Mapping[int, float]  # per node: traffic with hosts outside the job


def settled(windows: Sequence[Sums], job: Job, settings: LargeJobSettings) -> Edges | None:
    """Return the pairs with enough traffic in more than half of these windows; None if there are too few."""
    observed: dict[Pair, list[Sum]] = {}
    for sums in windows:
        for pair, total in sums.items():
            observed.setdefault(pair, []).append(total)
    enough = settings.busy_ticks * TICK_US
    active = {
        pair: totals
        for pair, totals in sorted(observed.items())
        if pair[1] != OUTSIDE and 2 * sum(t.busy_us >= enough and t.bytes > 0 for t in totals) > len(windows)
    }
    if len(active) < MIN_EDGES:
        return None
    usual_bytes = np.array([float(np.median([t.bytes for t in totals])) for totals in active.values()])
    mbit = np.array([8.0 * sum(t.bytes for t in of) / max(sum(t.busy_us for t in of), 1) for of in active.values()])
    traffic = _kinds(usual_bytes)
    medians = np.array([np.median(mbit[traffic == kind]) if (traffic == kind).any() else 0.0 for kind in Traffic])
    return Edges(
        fabric=_fabric(list(active), traffic, job),
        at={pair: at for at, pair in enumerate(active)},
        usual_mbit=medians[traffic],
        usual_bytes=usual_bytes,
        connections=np.array([float(np.median([t.connections for t in of])) for of in active.values()]),
        fastest_mbit=float(medians.max()),
        outside_bytes={
            pair[0]: float(np.median([t.bytes for t in of])) for pair, of in observed.items() if pair[1] == OUTSIDE
        },
    )


def _kinds(usual_bytes: Floats) -> NDArray[np.int64]:
    share = usual_bytes / np.quantile(usual_bytes, BUSIEST)
    return np.select([share >= LONG, share >= SHORT], [int(Traffic.RING), int(Traffic.TREE)], int(Traffic.SMALL))


def _fabric(pairs: Sequence[Pair], traffic: NDArray[np.int64], job: Job) -> Fabric:
    ends = np.array(pairs, dtype=np.int64)
    leaf = np.full(job.nodes, NOWHERE)
    if job.fabric is not None:
        leaf = np.unique(job.fabric.leaves, return_inverse=True)[1].astype(np.int64)
    nowhere = np.full(len(pairs), NOWHERE)
    return Fabric(
        source=ends[:, 0], target=ends[:, 1], traffic=traffic, up=nowhere, down=nowhere, node=np.arange(job.nodes),
        leaf=leaf,
    )  # fmt: skip


def window(
    edges: Edges, sums: Sums, settings: LargeJobSettings, *, from_s: float, to_s: float, trains: Trains | None = None
) -> Window:
    count = len(edges.fabric)
    moved, busy_us, connections = np.zeros(count), np.zeros(count), np.zeros(count)
    min_bytes = settings.foreign_share * edges.fastest_mbit * 1e6 * (to_s - from_s) / 8.0
    busy_nodes: set[int] = set()
    for pair, total in sums.items():
        at = edges.at.get(pair)
        if at is not None:
            moved[at], busy_us[at], connections[at] = total.bytes, total.busy_us, total.connections
        elif pair[1] == OUTSIDE:
            busy_nodes.update(pair[:1] if total.bytes - edges.outside_bytes.get(pair[0], 0.0) >= min_bytes else ())
    finite = (busy_us >= settings.busy_ticks * TICK_US) & (moved > 0)
    slowdown = np.full(count, np.nan)
    slowdown[finite] = np.log(edges.usual_mbit[finite] * busy_us[finite] / (8.0 * moved[finite]))
    extra = (connections > edges.connections) & (moved - edges.usual_bytes >= min_bytes)
    foreign = _touched(edges.fabric, extra, busy_nodes)
    probed = None if trains is None else _probed(edges, trains, settings)
    return Window(from_s=from_s, to_s=to_s, slowdown=slowdown, foreign=foreign, probed=probed)


def _probed(edges: Edges, trains: Trains, settings: LargeJobSettings) -> Floats | None:
    """Return the log of the fastest probe's time of each edge's pair over its peers'; None without probes."""
    found = np.full(len(edges.fabric), np.nan)
    for pair, (count, min_s) in trains.items():
        at = edges.at.get(pair)
        if at is not None and count >= settings.min_probes:
            found[at] = np.log(min_s)
    finite = np.isfinite(found)
    return found - np.median(found[finite]) if finite.any() else None


def _touched(fabric: Fabric, extra: NDArray[np.bool_], nodes: set[int]) -> NDArray[np.bool_] | None:
    """Return the edges that share a node with foreign bytes, in either direction: acknowledgements queue there too."""
    marked = np.zeros(fabric.node.size, dtype=np.bool_)
    marked[list(nodes)] = True
    marked[fabric.source[extra]] = marked[fabric.target[extra]] = True
    return np.asarray(marked[fabric.source] | marked[fabric.target]) if marked.any() else None


def unknown(edges: Edges, sums: Sums) -> bool:
    """Return whether most of the traffic within the job went over pairs that are no edges."""
    inside = [(pair in edges.at, total.bytes) for pair, total in sums.items() if pair[1] != OUTSIDE]
    return 2 * sum(carried for known, carried in inside if not known) > sum(carried for _, carried in inside)
