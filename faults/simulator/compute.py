"""The compute plane: the mean time that each node computes between collectives, per window.

log(gap) = usual of the stage + the node's own + a part shared by all ranks (sequence lengths) + data of the replica +
jitter of its steps + pauses + faults of the node.  A gap is a difference of two times of one clock, so a constant clock
error cancels; the node's own clock decides which steps end within a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import HANGS, FaultEvent, FaultKind
from faults.simulator.noise import Noise

_USUAL_S = 0.8  # of a step of a second
_END_STAGES = 0.1  # the first and the last stage also hold the embedding and the loss
_SHARED_SD = 0.03
_WANDER_S = 300.0


@dataclass(frozen=True, slots=True)
class Gaps:
    from_s: float
    to_s: float
    gap_s: NDArray[np.float64]  # per node, mean of the steps that ended within; NaN: not reported, or no step


class ComputePlane:
    """Compute gaps of one job, in order.  `imbalance`: differences between replicas over minutes, by their data."""

    def __init__(
        self,
        cluster: Cluster,
        noise: Noise,
        *,
        window_s: float,
        seed: int,
        imbalance: float = 0.0,
        skew_s: NDArray[np.float64] | None = None,
    ) -> None:
        self._noise, self._window_s, self._imbalance = noise, window_s, imbalance
        self._skew_s = np.zeros(cluster.shape.nodes) if skew_s is None else skew_s
        self._rng = np.random.default_rng([seed, 4])
        self._stage, self._replica = cluster.groups
        shape = cluster.shape
        ends = np.isin(self._stage, (0, shape.stages - 1)) * _END_STAGES
        self._usual = np.log(_USUAL_S) + ends + noise.gap_spread * self._rng.standard_normal(shape.nodes)
        self._of_node = noise.gap_wander * self._rng.standard_normal(shape.nodes)
        self._of_replica = imbalance * self._rng.standard_normal(shape.replicas)

    def window(self, from_s: float, *, reported: NDArray[np.bool_], events: Sequence[FaultEvent] = ()) -> Gaps:
        noise, rng, to_s = self._noise, self._rng, from_s + self._window_s
        nodes = self._usual.size
        scale = (10.0 / self._window_s) ** 0.5
        jitter = noise.gap * min(1.0, noise.step_s / self._window_s) ** 0.5
        log_gap = self._usual + self._of_node + jitter * rng.standard_normal(nodes) + _SHARED_SD * rng.standard_normal()
        slow = float(np.exp(-self._window_s / _WANDER_S))
        self._of_node = slow * self._of_node + (1.0 - slow * slow) ** 0.5 * noise.gap_wander * rng.standard_normal(
            nodes
        )
        keep = float(np.exp(-self._window_s / noise.memory_s))
        fresh = self._imbalance * (1.0 - keep * keep) ** 0.5
        self._of_replica = keep * self._of_replica + fresh * rng.standard_normal(self._of_replica.size)
        log_gap += self._of_replica[self._replica]
        paused = rng.integers(0, nodes, rng.poisson(noise.pauses_per_node_h * nodes * self._window_s / 3600.0))
        log_gap[paused] += np.log1p(rng.exponential(noise.pause_share * scale * scale, paused.size))
        still = 0.0
        for one in events:
            if one.kind is FaultKind.STRAGGLER:
                log_gap[one.at] += self._late(one, one.at, from_s)
            elif one.kind is FaultKind.IMBALANCE:
                for node in np.flatnonzero(self._replica == one.at):
                    log_gap[node] += self._late(one, int(node), from_s)
            elif one.kind in HANGS or one.kind is FaultKind.PAUSE:
                still += one.share(from_s, to_s)
        gone = ~reported if still < 0.9 else np.ones(nodes, dtype=bool)
        return Gaps(from_s=from_s, to_s=to_s, gap_s=np.where(gone, np.nan, np.exp(log_gap)))

    def _late(self, one: FaultEvent, node: int, from_s: float) -> float:
        from_s += float(self._skew_s[node])
        return float(np.log1p(one.share(from_s, from_s + self._window_s) * (one.factor - 1.0)))
