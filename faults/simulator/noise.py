"""The noise of healthy measurements, with the source of each figure.

A detector must not be graded on its own model, so there are several kinds: see `KINDS`.  All are logs of bandwidth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of a 10 s window; a window of w seconds has sqrt(10 / w) times as much.

    Measured (ranks in namespaces behind 200 Mbit/s links, November 2026): ring .047 in 5 s and .031 in 10 s, falling
    with the root; small messages .10 and .07 to .11; nearly Gaussian.  A second library on a busy machine: ring .046,
    small .15, between edges .09.  Computing: one step .10 of 3 in 30 ms.  The minimum of five one-way probes: .005
    idle, .004 loaded; all five met the job's own traffic in 9 % of windows, all three of three in 19 %, so a single one
    does with .6, the share of time in which that job sent.  All other values are assumed, because real fabrics have
    these effects, and vary by kind.
    """

    tail: float = 4.0  # degrees of freedom of Student's t
    ring: float = 0.035
    tree: float = 0.05
    small: float = 0.07
    spread: float = 0.05  # constant offset of an edge from the usual of its kind
    drift_per_sqrt_h: float = 0.01  # random walk of that usual
    nic: float = 0.005  # shared by all edges of a NIC, with a memory of `memory_s`
    leaf: float = 0.005  # shared by all NICs of a leaf
    memory_s: float = 60.0
    diurnal: float = 0.03  # of all edges together, over a day
    leak: float = 0.3  # share of a slowdown on the return path, where acknowledgements queue (TCP measured: about 1)
    small_feels: float = 0.7  # share of a slowdown: the rest of a small message's time is latency
    uneven: float = 0.1  # standard deviation of that share between edges
    talks: float = 0.2  # share of a step: bytes flow in bursts, and a window can end within one
    probe: float = 0.02  # of the minimum of five one-way probes, for any window: four times the measured value
    probe_spread: float = 0.02  # constant offset of a pair's probes from those of others
    probe_met: float = (
        0.2**5
    )  # share of pairs all of whose probes in a window met the job's traffic: `talks` to the 5th
    probe_wait: float = 0.5  # mean log slowdown of these; single probes measured: .55
    gap: float = 0.03  # of a node's time to compute, from step to step
    step_s: float = 2.0  # longer steps: fewer of them per window
    gap_wander: float = 0.003  # of a node's mean over minutes: clocks, temperature
    gap_spread: float = 0.01
    pauses_per_node_h: float = 2.0  # garbage collection, page faults, a daemon: one window's gap grows
    pause_share: float = 0.15  # mean growth

    def sd(self, window_s: float) -> tuple[float, float, float]:
        """Return the standard deviation per kind of traffic, of a window that long."""
        scale = (10.0 / window_s) ** 0.5
        return self.ring * scale, self.tree * scale, self.small * scale


LAB = Noise()
KINDS: Mapping[str, Noise] = MappingProxyType(
    {
        "lab": LAB,
        "heavy": replace(LAB, tail=3.0, probe=0.03, probe_met=0.003),
        "correlated": replace(LAB, nic=0.015, leaf=0.015, memory_s=120.0),
        "drifting": replace(LAB, drift_per_sqrt_h=0.03, diurnal=0.10),
        "tcp": replace(LAB, leak=0.8, small_feels=0.9, uneven=0.2),
        "rdma": replace(LAB, leak=0.05, small_feels=0.4, uneven=0.2),
        "busy-lab": replace(
            LAB, ring=0.046, tree=0.07, small=0.15, spread=0.09, probe=0.03, probe_spread=0.035, probe_met=0.026
        ),
        "loud": replace(LAB, ring=0.07, tree=0.10, small=0.14, spread=0.08, probe=0.04, probe_spread=0.04),
    }
)
