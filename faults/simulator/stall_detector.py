"""Diagnoses stalls of thousands of ranks: the roots of the wait-for graph, and unacknowledged bytes between nodes.

A place is diagnosed after it has been a root for `patience_s`, or for some of the job's own steps: a new root has only
become late.  The duration starts by the suspected node's clock and ends by the median of all.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric
from faults.hangs.wait_for_graph import Memberships, Waits, wait_for
from faults.simulator.cluster import Cluster
from faults.simulator.stall_plane import Progress

Place = tuple[FaultClass, Scope, int, int | None, Direction | None]


@dataclass(frozen=True, slots=True)
class StallState:
    """The start of each unbroken suspicion by place, and the progress of the job at that time."""

    since_s: dict[Place, float] = field(default_factory=dict)
    steps: int = -1
    progress: Progress | None = None  # the last snapshot: while nothing moves, the graph is the same


@dataclass(frozen=True, slots=True)
class StallDetector:
    fabric: Fabric
    rows: Memberships
    patience_s: float = 2.0
    patience_steps: float = 2.0  # a rank so much later than all others is not merely slow
    cut_s: float = 1.0  # after two failed retransmissions
    cut_steps: float = 1.0

    @classmethod
    def of(cls, cluster: Cluster) -> "StallDetector":
        """Order rows by kind of group, then by rank: the order of `Progress`."""
        shape = cluster.shape
        grid = np.arange(shape.ranks).reshape(shape.stages, shape.replicas, shape.per_node)
        kinds = (
            grid.reshape(-1, shape.per_node),
            grid.transpose(1, 2, 0).reshape(-1, shape.stages),
            grid.transpose(0, 2, 1).reshape(-1, shape.replicas),
        )
        return cls(cluster.known, Memberships.of([list(group) for kind in kinds for group in kind], ranks=shape.ranks))

    def start(self) -> StallState:
        return StallState()

    def step(self, state: StallState, progress: Progress) -> tuple[StallState, tuple[Diagnosis, ...]]:
        same = state.progress is not None and _is_unchanged(state.progress, progress)
        places = list(state.since_s) if same else self._places(progress)
        steps = int(progress.finished[:, progress.reported].max(axis=1, initial=0).sum())
        before_s = state.since_s if steps == state.steps else {}  # a rank progressed: no stall
        since_s = {place: before_s.get(place, _stamp_s(place, progress)) for place in places}
        until_s = _until_s(progress)
        found = [
            _diagnosis(place, onset_s=begun_s, now_s=progress.at_s)
            for place, begun_s in since_s.items()
            if until_s - begun_s >= self._patience_s(place[0], progress.step_s)
        ]
        return StallState(since_s, steps, progress), tuple(found)

    def _patience_s(self, fault: FaultClass, step_s: float) -> float:
        """Return the time that a suspicion must last; a missing process needs no second sample."""
        if fault is FaultClass.CRASH:
            return -np.inf
        if fault is FaultClass.COMM_HANG:
            return max(self.cut_s, self.cut_steps * step_s)
        return max(self.patience_s, self.patience_steps * step_s)

    def _places(self, progress: Progress) -> list[Place]:
        kind = np.repeat(np.arange(3), progress.reported.size)
        waits = wait_for(
            self.rows,
            entered=progress.entered[kind, self.rows.rank],
            finished=progress.finished[kind, self.rows.rank],
            reported=progress.reported[self.rows.rank],
            alive=progress.alive,
        )
        dead = [int(rank) for rank in waits.confirmed] + [int(rank) for rank in np.flatnonzero(progress.gone)]
        late = [int(rank) for rank in waits.missing if not progress.saving[rank] and not progress.gone[rank]]
        places: list[Place] = [(FaultClass.CRASH, Scope.NODE, node, None, None) for node in self._nodes(dead)]
        if not places:
            places += [(FaultClass.NONCOMM_HANG, Scope.NODE, node, None, None) for node in self._nodes(late)]
        return places + self._cuts(progress, waits) if not dead else places

    def _nodes(self, ranks: list[int]) -> list[int]:
        return sorted({int(self.fabric.node[rank]) for rank in ranks})

    def _cuts(self, progress: Progress, waits: Waits) -> list[Place]:
        """Return nodes that two others cannot reach, and separately cut pairs; only while some group is stuck."""
        if not (waits.stuck | waits.uncertain).any() or not progress.unacked.size:
            return []
        first, last = self._ends(progress.unacked)
        pairs = {tuple(sorted(pair)) for pair in zip(first.tolist(), last.tolist(), strict=True)}
        cut_peers = np.bincount(np.array(list(pairs), dtype=np.int64).ravel())
        nodes = {int(node) for node in np.flatnonzero(cut_peers >= 2)}
        # Of two nodes that are cut from each other, the one with more cuts.
        nodes = {
            node
            for node in nodes
            if not any(node in pair and cut_peers[_other(pair, node)] > cut_peers[node] for pair in pairs)
        }
        found: list[Place] = [(FaultClass.COMM_HANG, Scope.NODE, node, None, Direction.BOTH) for node in sorted(nodes)]
        dead = {(int(a), int(b)) for a, b, came in zip(first, last, progress.arrived, strict=True) if not came}
        for pair in sorted(pairs):
            if not nodes & set(pair):
                one_way = [way for way in (pair, pair[::-1]) if way in dead]
                node, peer = one_way[0] if one_way else pair
                way = Direction.FORWARD if len(one_way) == 1 else Direction.BOTH
                found.append((FaultClass.COMM_HANG, Scope.LINK, node, peer, way))
        return found

    def _ends(self, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.fabric.node[self.fabric.source[edges]], self.fabric.node[self.fabric.target[edges]]


def _is_unchanged(before: Progress, now: Progress) -> bool:
    return all(
        np.array_equal(getattr(before, name), getattr(now, name))
        for name in ("finished", "entered", "reported", "alive", "gone", "saving", "unacked", "arrived")
    )


def _stamp_s(place: Place, progress: Progress) -> float:
    """Return the last report of the suspected node's agent; without one, the end of the evidence."""
    stamp_s = float(progress.stamp_s[place[2]])
    per_node = progress.reported.size // progress.stamp_s.size
    return stamp_s if progress.reported[place[2] * per_node] else min(_until_s(progress), progress.at_s)


def _until_s(progress: Progress) -> float:
    """Return the end of the evidence: the median of the newest reports."""
    received = progress.reported[:: progress.reported.size // progress.stamp_s.size]
    return float(np.median(progress.stamp_s[received])) if received.any() else -np.inf


def _other(pair: tuple[int, ...], node: int) -> int:
    return pair[0] if pair[1] == node else pair[1]


_REASON = {
    FaultClass.CRASH: "its processes are gone, or the machine does not respond",
    FaultClass.NONCOMM_HANG: "other ranks wait for it, and it waits for none",
    FaultClass.COMM_HANG: "all ranks have entered, and sent bytes are not acknowledged",
}


def _diagnosis(place: Place, *, onset_s: float, now_s: float) -> Diagnosis:
    fault, scope, node, peer, direction = place
    return Diagnosis(
        fault=fault,
        scope=scope,
        node=node,
        peer=peer,
        direction=direction,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=scope is Scope.NODE,
        confidence=0.95,
        reason=_REASON[fault],
        evidence=("progress", "sockets") if fault is FaultClass.COMM_HANG else ("progress",),
    )
