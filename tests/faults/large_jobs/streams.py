"""Windows of the simulator's planes as an agent's stream: socket polls in each window and one record per step."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from faults.detector import Job, JobFabric
from faults.fabric import Traffic
from faults.observations import Collective, Observation, Socket
from faults.simulator.cluster import Cluster, Shape, build
from faults.simulator.compute import ComputePlane
from faults.simulator.fault_schedule import FaultEvent
from faults.simulator.noise import LAB
from faults.simulator.slow import SlowPlane

WINDOW_S = 5.0
POLLS = 2  # socket polls in a window
STEP_S = 1.0  # the simulator's
BYTES = {Traffic.RING: 40_000_000, Traffic.TREE: 10_000_000, Traffic.SMALL: 1_000_000}  # of an edge in a window
MBIT = {Traffic.RING: 200.0, Traffic.TREE: 180.0, Traffic.SMALL: 60.0}


def cluster(nodes: int = 32, *, stages: int = 4, leaf_nodes: int = 8) -> Cluster:
    """One NIC per node."""
    return build(Shape(ranks=nodes, per_node=1, stages=stages, leaf_nodes=leaf_nodes, spines=4), seed=3)


def job_of(of: Cluster, *, leaves: bool = True) -> Job:
    names = tuple(f"rack {leaf}" for leaf in of.fabric.leaf.tolist())
    stage, replica = of.groups
    members = [np.flatnonzero(role == at) for role in (stage, replica) for at in np.unique(role)]
    return Job(
        nodes=of.shape.nodes,
        rank_node=tuple(range(of.shape.nodes)),
        groups=tuple(tuple(each.tolist()) for each in members),
        fabric=JobFabric(names) if leaves else None,
    )


def socket(carried: float, busy_us: float, connections: int = 1) -> Socket:
    return Socket(connections, int(carried), 0, int(busy_us), *([0] * 15))


class Stream:
    """The observations of all agents, window by window."""

    def __init__(self, of: Cluster, *, seed: int, polls: int = POLLS) -> None:
        self.of, self._polls = of, polls
        self._slow = SlowPlane(of, LAB, window_s=WINDOW_S, seed=seed)
        self._compute = ComputePlane(of, LAB, window_s=STEP_S, seed=seed)
        self._path = np.zeros((of.shape.uplinks + 1, 2), np.float32)
        ends = zip(of.fabric.source.tolist(), of.fabric.target.tolist(), strict=True)
        self._pairs = [(pair, Traffic(kind)) for pair, kind in zip(ends, of.fabric.traffic.tolist(), strict=True)]
        self._carried = np.zeros((len(self._pairs), 2))
        self._clock_s = np.zeros(of.shape.nodes)
        self._seq = 0
        self.at_s = 0.0

    def windows(
        self, count: int, events: Sequence[FaultEvent] = (), *, silent: Sequence[int] = (), longer: float = 1.0
    ) -> Iterator[Observation]:
        """`longer`: the factor by which the events lengthen a step."""
        observed = np.ones(self.of.shape.nodes, dtype=np.bool_)
        observed[list(silent)] = False
        for _ in range(count):
            slow_window = self._slow.window(self.at_s, path=self._path, reported=observed, events=events)
            begin_s = np.arange(self.at_s, self.at_s + WINDOW_S, STEP_S)
            gaps_s = [self._compute.window(at_s, reported=observed, events=events).gap_s for at_s in begin_s.tolist()]
            found = [*self._sockets(slow_window.slowdown, observed), *self._steps(gaps_s, observed, longer)]
            yield from sorted(found, key=lambda one: one.at_s)
            self.at_s += WINDOW_S

    def _sockets(self, slowdown: NDArray[np.float64], observed: NDArray[np.bool_]) -> Iterator[Observation]:
        """Edges of two kinds between the same nodes share their sockets."""
        for poll in range(1, self._polls + 1):
            sums: dict[tuple[int, int], NDArray[np.float64]] = {}
            for at, (pair, kind) in enumerate(self._pairs):
                if np.isfinite(slowdown[at]):
                    bytes_ = BYTES[kind] / self._polls
                    self._carried[at] += bytes_, 8.0 * bytes_ / MBIT[kind] * np.exp(slowdown[at])
                sums[pair] = sums.get(pair, np.zeros(2)) + self._carried[at]
            at_s = self.at_s + (poll - 0.5) * WINDOW_S / self._polls
            for (node, peer), (carried, busy_us) in sums.items():
                if observed[node]:
                    yield Observation(at_s, node, socket(carried, busy_us), peer=peer)

    def _steps(
        self, gaps_s: Sequence[NDArray[np.float64]], observed: NDArray[np.bool_], longer: float
    ) -> Iterator[Observation]:
        for step, gap_s in enumerate(gaps_s):
            self._seq += 1
            ends_s = self.at_s + (step + 0.9) * STEP_S
            for node in np.flatnonzero(observed & np.isfinite(gap_s)).tolist():
                arrived_s = float(self._clock_s[node] + gap_s[node])
                finished_s = arrived_s + 0.2 * STEP_S * longer
                self._clock_s[node] = finished_s
                yield Observation(
                    ends_s, node, Collective(self._seq, "all_reduce", 1, arrived_s, finished_s, self._seq), rank=node
                )
