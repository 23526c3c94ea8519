"""C4's rule, for comparison: an edge is slow above 1.5x the median of its kind, a NIC with 60 % of its row or column
slow.

The rule has no baseline per edge, no switches and no state.  Rows and columns are those of single NICs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric, Window
from faults.simulator.cluster import Cluster
from faults.simulator.detectors import Detectors


@dataclass(frozen=True, slots=True)
class C4Detector:
    fabric: Fabric
    times: float = 1.5
    share: float = 0.6

    def start(self) -> None:
        """The empty state."""

    def step(self, state: None, window: Window) -> tuple[None, tuple[Diagnosis, ...]]:
        hot = self._hot(window.slowdown)
        if not hot.any():
            return state, ()
        observed = np.isfinite(window.slowdown)
        tx = self._mostly(hot, observed, self.fabric.source)
        rx = self._mostly(hot, observed, self.fabric.target)
        alone = hot & ~tx[self.fabric.source] & ~rx[self.fabric.target]
        found = [self._node(int(nic), bool(tx[nic]), bool(rx[nic]), window) for nic in np.flatnonzero(tx | rx)]
        found += [self._link(int(edge), window) for edge in np.flatnonzero(alone)]
        return state, tuple(found)

    def _hot(self, slowdown: NDArray[np.float64]) -> NDArray[np.bool_]:
        hot = np.zeros(slowdown.size, dtype=bool)
        for kind in np.unique(self.fabric.traffic):
            of_kind = (self.fabric.traffic == kind) & np.isfinite(slowdown)
            if of_kind.any():
                hot[of_kind] = slowdown[of_kind] > np.median(slowdown[of_kind]) + np.log(self.times)
        return hot

    def _mostly(self, hot: NDArray[np.bool_], observed: NDArray[np.bool_], nic: NDArray[np.int64]) -> NDArray[np.bool_]:
        size = self.fabric.node.size
        lines, slow = np.bincount(nic[observed], minlength=size), np.bincount(nic[hot], minlength=size)
        return (lines >= 2) & (slow >= self.share * lines)

    def _node(self, nic: int, tx: bool, rx: bool, window: Window) -> Diagnosis:  # noqa: FBT001 - the pair is the value
        way = Direction.BOTH if tx and rx else Direction.TX if tx else Direction.RX
        return _diagnosis(Scope.NODE, int(self.fabric.node[nic]), None, way, window)

    def _link(self, edge: int, window: Window) -> Diagnosis:
        ends = int(self.fabric.node[self.fabric.source[edge]]), int(self.fabric.node[self.fabric.target[edge]])
        return _diagnosis(Scope.LINK, *ends, Direction.FORWARD, window)


def c4_detectors(cluster: Cluster) -> Detectors:
    return Detectors(slow=C4Detector(cluster.known))


def _diagnosis(scope: Scope, node: int, peer: int | None, way: Direction, window: Window) -> Diagnosis:
    return Diagnosis(
        fault=FaultClass.COMM_SLOW,
        scope=scope,
        node=node,
        peer=peer,
        direction=way,
        onset_s=window.from_s,
        detected_s=window.to_s,
        isolate=scope is Scope.NODE,
        confidence=0.5,
        reason="slower than 1.5 times the median of its kind",
        evidence=("bandwidth",),
    )
