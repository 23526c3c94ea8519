"""The collectives of each rank, step after step, and when it finishes them: the physics of a stall.

A step is: compute, the tensor group's collective, the pipeline's (all stages of a replica and rail), the data group's
(all replicas of a stage and rail).  A collective finishes for all when the last member has entered and the bytes have
arrived.  Times are maxima over groups, so a missing rank stops exactly the ranks that depend on it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Ints, Traffic
from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import FaultEvent, FaultKind

Times = NDArray[np.float64]
STEP_S, COLLECTIVE_S, JITTER = 0.85, 0.05, 0.03
TENSOR, PIPELINE, DATA = range(3)


@dataclass(frozen=True, slots=True)
class Timetable:
    """Times at which each rank entered and finished each collective, per kind of group and step; infinite: never."""

    entered_s: Times  # [kind, step, rank]
    finished_s: Times
    begun_s: Times  # per step: when the first rank entered any of its collectives
    done_s: Times  # when the last rank finished the last of them

    def counts_at(self, at_s: Times) -> tuple[Ints, Ints]:
        """Return [kind, rank]: how many collectives a rank has entered and finished, at a time per rank."""
        done = int(np.searchsorted(self.done_s, at_s.min(), side="right"))
        steps = slice(done, int(np.searchsorted(self.begun_s, at_s.max(), side="right")))  # only steps in progress
        return (
            done + (self.entered_s[:, steps] <= at_s).sum(axis=1),
            done + (self.finished_s[:, steps] <= at_s).sum(axis=1),
        )


def timetable(cluster: Cluster, events: list[FaultEvent], *, from_s: float, to_s: float, seed: int) -> Timetable:
    """Return the timetable of a job that has run evenly until `from_s`."""
    rng = np.random.default_rng([seed, 8, int((from_s + 60.0) * 1000)])
    ranks, steps = cluster.shape.ranks, int((to_s - from_s) / STEP_S) + 2
    came, through = np.full((3, steps, ranks), np.inf), np.full((3, steps, ranks), np.inf)
    begin = np.full(ranks, from_s)
    step = 0
    for step in range(steps):
        called = _called(cluster, events, begin, rng)
        for kind in (TENSOR, PIPELINE, DATA):
            came[kind, step] = _without_crashed(cluster, events, called)
            called = _through(cluster, events, kind, came[kind, step])
            through[kind, step] = called
        begin = called
        if not np.isfinite(begin).any():
            break
    came, through = came[:, : step + 1], through[:, : step + 1]
    return Timetable(came, through, came.min(axis=(0, 2)), through.max(axis=(0, 2)))


def _called(cluster: Cluster, events: list[FaultEvent], begin: Times, rng: np.random.Generator) -> Times:
    """Return when each rank has computed: later during a checkpoint, never if its code hangs."""
    compute_s = (STEP_S - 3 * COLLECTIVE_S) * (1.0 + JITTER * np.abs(rng.standard_normal(begin.size)))
    called = begin + compute_s
    shape = cluster.shape
    saving = np.isin(np.arange(shape.ranks) // shape.per_node, writing_nodes(cluster))
    for from_s, to_s in _pauses(events):
        held = saving & (called >= from_s) & (begin < to_s)
        called[held] += to_s - from_s
    for one in events:
        if one.kind is FaultKind.HANG_CODE:
            rank = one.at * shape.per_node + int(one.from_s * 1000) % shape.per_node
            if called[rank] >= one.from_s:
                called[rank] = np.inf
    return called


def _pauses(events: list[FaultEvent]) -> list[tuple[float, float]]:
    """Return the checkpoints; an overlapping one extends the first."""
    found: list[tuple[float, float]] = []
    for one in sorted((one for one in events if one.kind is FaultKind.PAUSE), key=lambda one: one.from_s):
        if found and one.from_s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], one.to_s)
        else:
            found.append((one.from_s, one.to_s))
    return found


def _without_crashed(cluster: Cluster, events: list[FaultEvent], called: Times) -> Times:
    came = called.copy()
    for one in events:
        if one.kind is FaultKind.CRASH:
            mine = slice(one.at * cluster.shape.per_node, (one.at + 1) * cluster.shape.per_node)
            came[mine] = np.where(came[mine] >= one.from_s, np.inf, came[mine])
    return came


def _through(cluster: Cluster, events: list[FaultEvent], kind: int, came: Times) -> Times:
    shape = cluster.shape
    grid = came.reshape(shape.stages, shape.replicas, shape.per_node)
    axis = {TENSOR: 2, PIPELINE: 0, DATA: 1}[kind]
    done = grid.max(axis=axis, keepdims=True) + COLLECTIVE_S
    cut = np.zeros(done.shape, dtype=bool)
    for one in events:
        cut |= _cut(cluster, one, kind, done)
    return np.broadcast_to(np.where(cut, np.inf, done), grid.shape).reshape(came.shape)


def _cut(cluster: Cluster, one: FaultEvent, kind: int, done: Times) -> NDArray[np.bool_]:
    """Return the groups, in the grid's shape, whose bytes do not arrive."""
    shape = cluster.shape
    cut = np.zeros(done.shape, dtype=bool)
    if one.kind is FaultKind.HANG_LINK:
        stage, replica, rail = _place(cluster, one.at)
        if kind == (PIPELINE if _is_small(cluster, one) else DATA):
            cut[(0, replica, rail) if kind == PIPELINE else (stage, 0, rail)] = True
    elif one.kind in (FaultKind.HANG_NODE, FaultKind.CRASH) and kind != TENSOR:
        stage, replica, _ = _place(cluster, one.at * shape.per_node)
        cut[(0, replica) if kind == PIPELINE else (stage, 0)] = True
    return cut & (done > one.from_s)


def _place(cluster: Cluster, rank: int) -> tuple[int, int, int]:
    node, rail = divmod(rank, cluster.shape.per_node)
    stage, replica = divmod(node, cluster.shape.replicas)
    return stage, replica, rail


def _is_small(cluster: Cluster, one: FaultEvent) -> bool:
    fabric = cluster.fabric
    kinds = fabric.traffic[(fabric.source == one.at) & (fabric.target == one.to)]
    return bool(kinds.size) and bool((kinds == Traffic.SMALL).all())


def writing_nodes(cluster: Cluster) -> Ints:
    """Return the nodes that write checkpoints: those of the first replica."""
    return np.arange(cluster.shape.stages) * cluster.shape.replicas
