"""One-way probes of each pair of NICs, over their own paths.  docs/explanation/faults/simulator.md, "Slow plane"

A congested cable shows only if all of a window's probes meet one; in a few windows all meet the job's own traffic.
Edges of one pair share its value.  The sender's clock cuts the windows.  Probers are separate processes, so they are
lost independently of agents and as often.  Both ends of a train report: a value is known where both probers run and one
report arrives.  While the network takes nothing from a pod its probers run on, and probers outside report the probes
between the two.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.simulator.cluster import Cluster
from faults.simulator.kernel import AffectedEdges, fill_probes, narrow_probes
from faults.simulator.noise import Noise

TRAINS = 5  # per pair and window, at least

SlowLink = tuple[int, int, float]  # from NIC, to NIC, log slowdown over the window


class Probers(NamedTuple):
    run: NDArray[np.bool_]  # and send trains
    reporting: NDArray[np.bool_]  # their reports arrive

    def of(self, nodes: Ints) -> "Probers":
        return Probers(self.run[nodes], self.reporting[nodes])


class Probes:
    """Probe values of one job, window by window, with their own random numbers."""

    def __init__(self, cluster: Cluster, noise: Noise, *, seed: int) -> None:
        self._noise, self._rng = noise, np.random.default_rng([seed, 11])
        fabric = cluster.fabric
        nics = fabric.node.size
        by_port = zip(cluster.probe_up, cluster.probe_down, strict=True)
        rows = [fabric.source, fabric.target, *(way for both in by_port for way in both)]
        self._ways = np.stack(rows).astype(np.int32)
        self._ports, self._next = len(cluster.probe_up), 0
        # One of these ports sends in any window, and an uncongested path of it is enough.
        ways = [row for port in range(0, self._ports, TRAINS) for row in (2 + 2 * port, 3 + 2 * port)]
        self._passing = AffectedEdges.of(self._ways[[0, 1, *ways]], nics=nics, uplinks=cluster.shape.uplinks)
        key = fabric.source * nics + fabric.target
        self._pairs, pair = np.unique(key, return_inverse=True)
        self._pair = pair.astype(np.int32)
        self._by_pair = np.argsort(pair, kind="stable")
        self._first = np.searchsorted(pair[self._by_pair], np.arange(self._pairs.size + 1))
        self._nics = nics
        self._of_pair = np.empty(self._pairs.size, np.float32)
        self._usual = (noise.probe_spread * self._rng.standard_normal(self._pairs.size)).astype(np.float32)[pair]
        self._scale = noise.probe * ((noise.tail - 2.0) / noise.tail) ** 0.5  # of t itself

    def window(
        self,
        *,
        probers: Probers,
        send: NDArray[np.float32],
        take: NDArray[np.float32],
        path: NDArray[np.float32],
        late: NDArray[np.float32],
        links: Sequence[SlowLink],
    ) -> Floats:
        """Return values per edge.  The slowdowns of NICs and uplinks as `kernel.narrow` takes them; `probers`: per
        NIC.
        """
        out = np.empty(self._pair.size)
        seed = self._rng.integers(0, 2**64, dtype=np.uint64, endpoint=False)
        fill_probes(
            out, self._of_pair, seed, self._noise.tail, self._scale, self._pair, self._usual, self._ways, *probers
        )
        touched = self._passing.edges(send, take, path)
        narrow_probes(out, touched, self._ways, self._next, TRAINS, send, take, path, late)
        self._next = (self._next + TRAINS) % self._ports
        for source, target, slowdown in links:
            pair = int(np.searchsorted(self._pairs, source * self._nics + target))
            out[self._edges(pair)] += slowdown
        self._meeting(out)
        return out

    def _edges(self, pair: int) -> NDArray[np.int64]:
        return self._by_pair[self._first[pair] : self._first[pair + 1]]

    def _meeting(self, out: Floats) -> None:
        """Add waits to the pairs whose probes all waited behind the job's own bytes."""
        pairs = self._pairs.size
        count = int(self._rng.binomial(pairs, self._noise.probe_met))
        waits = self._rng.exponential(self._noise.probe_wait, count)
        for pair, wait in zip(self._rng.integers(0, pairs, count).tolist(), waits.tolist(), strict=True):
            out[self._edges(pair)] += wait
