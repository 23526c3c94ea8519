"""Losses of agents and probers: outages of minutes, single lost reports, and clock errors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Losses:
    agents: float = 0.01  # and as many probers
    outage_s: float = 600.0  # mean
    reports: float = 0.0005
    skew_s: float = 0.005  # largest clock error, either way
    direct: bool = True  # ranks report their compute time directly while their agent is lost


class Telemetry:
    def __init__(self, nodes: int, losses: Losses, rng: np.random.Generator) -> None:
        self._losses = losses
        self._rng = rng
        down = rng.random(nodes) < losses.agents
        self._back_s = np.where(down, rng.exponential(losses.outage_s, nodes), -np.inf)
        self.run: NDArray[np.bool_] = ~down  # agents that ran during the whole last window
        # Nodes whose ranks' records of the last window arrive.
        self.with_records: NDArray[np.bool_] = np.ones(nodes, dtype=bool)
        self.skew_s: NDArray[np.float64] = rng.uniform(-losses.skew_s, losses.skew_s, nodes)

    def reported(self, from_s: float, to_s: float) -> NDArray[np.bool_]:
        """Return the nodes whose report of a window arrives.  An agent that returns within the window does not report
        it.
        """
        nodes, losses, rng = self._back_s.size, self._losses, self._rng
        rate_per_s = losses.agents / (1.0 - losses.agents) / losses.outage_s
        failing = rng.integers(0, nodes, rng.poisson(nodes * rate_per_s * (to_s - from_s)))
        self._back_s[failing] = np.maximum(self._back_s[failing], to_s + rng.exponential(losses.outage_s, failing.size))
        self.run = self._back_s <= from_s
        reported, self.with_records = self.run.copy(), self.run | losses.direct
        lost = rng.integers(0, nodes, rng.poisson(nodes * losses.reports))
        reported[lost] = self.with_records[lost] = False
        return reported
