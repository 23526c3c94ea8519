"""The effect of wrong agent clocks on windows.

A clock with error d (d < 0: early) cuts the interval [from + d, to + d].  Bytes flow in bursts, a share `talks` of each
step; B(t) = bytes until t over their mean rate.  A window w of an even flow counts

    w + (B(p' + d) - B(p')) - (B(p + d) - B(p))        p, p': positions of the window's edges within a step

so no byte is lost: its neighbour counts what a window misses.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import FaultEvent
from faults.simulator.noise import Noise

Times = NDArray[np.float64]


@dataclass(slots=True)
class Clocks:
    """The clocks of all agents; `edge_s` is the position of the next window's edge within a step."""

    skew_s: Times  # per node
    late: NDArray[np.float32]  # per NIC: its agent's clock between the earliest (0) and the latest (1)
    most_s: float
    noise: Noise
    rng: np.random.Generator
    node: NDArray[np.int64]  # per NIC
    edge_s: float = 0.0
    _before_s: Times | None = None  # moved over the window's first edge

    @classmethod
    def of(cls, skew_s: Times | None, cluster: Cluster, rng: np.random.Generator, *, noise: Noise) -> "Clocks":
        """Return the clocks of the agents; None if all clocks are exact."""
        skew_s = np.zeros(cluster.shape.nodes) if skew_s is None else skew_s
        most_s = float(np.abs(skew_s).max(initial=0.0))
        of_node = (skew_s + most_s) / (2.0 * most_s) if most_s else np.zeros(skew_s.size)
        node = cluster.fabric.node
        edge_s = float(rng.uniform(0.0, noise.step_s))
        return cls(skew_s, of_node[node].astype(np.float32), most_s, noise, rng, node, edge_s)

    def both(self, one: FaultEvent, from_s: float, to_s: float) -> NDArray[np.float32]:
        """Return the log slowdown over a window, by the earliest and by the latest clock."""
        early, late = (felt_log(one, from_s + by_s, to_s + by_s) for by_s in (-self.most_s, self.most_s))
        return np.array([early, late], np.float32)

    def moved(self, flowing_s: float) -> NDArray[np.float32]:
        """Return, per NIC, the log slowdown by the bytes that its agent counts in the neighbouring windows."""
        before_s = self._carried(self.edge_s) if self._before_s is None else self._before_s
        self.edge_s = float(self.rng.uniform(0.0, self.noise.step_s))
        self._before_s = self._carried(self.edge_s)
        extra_s = self._before_s - before_s
        return np.asarray(-np.log1p(extra_s / flowing_s), np.float32)[self.node]

    def _carried(self, edge_s: float) -> Times:
        """Return, per agent, the bytes between the true edge and its own, in seconds of the mean rate."""
        return self._bytes(edge_s + self.skew_s) - self._bytes(np.full(self.skew_s.size, edge_s))

    def _bytes(self, at_s: Times) -> Times:
        step_s, talks = self.noise.step_s, self.noise.talks
        steps, within_s = np.divmod(at_s, step_s)
        return steps * step_s + np.minimum(within_s, talks * step_s) / talks


def felt_log(one: FaultEvent, from_s: float, to_s: float) -> float:
    """Return the log slowdown over an interval of an event that lasts for a part of it."""
    return float(-np.log1p(-one.share(from_s, to_s) * (1.0 - 1.0 / one.factor)))
