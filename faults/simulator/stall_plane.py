"""The hang plane: reports of each rank's progress, 4 times a second, while an event stalls the job.

The reports of two nodes are never simultaneous: each agent samples at its own phase and stamps its reports by its own
wrong clock.  An independent source (leases, pings) reports a second later whether a machine responds.  Without a stall
every snapshot would show ranks in step; those are omitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Ints
from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import HANGS, FaultEvent, FaultKind, takes_machine
from faults.simulator.program import STEP_S, Timetable, timetable, writing_nodes

_CUT_KNOWN_S = 0.7  # Linux retransmits after at least 0.2 and 0.6 s: two failed retransmissions
BEAT_S = 0.25  # the sample period of the recorder: 4 Hz
_LEAD_S = 3.0  # of normal progress before the event
_PING_S = 1.0  # four pings without a reply, 4 per second
_SILENCE_SHOWN_S = 6.0  # of silence alone: all ranks progress, and later snapshots are equal
_SETTLED_S = 40.0  # after this time only the set of reporting agents changes
_SPARSE_S = 5.0  # snapshot period from then on
_UNKNOWN = 0.005  # of machines unknown to the independent source
_STALLING = HANGS | {FaultKind.PAUSE, FaultKind.SILENCE}


@dataclass(frozen=True, slots=True)
class Cut:
    from_s: float
    unacked: Ints  # edges whose bytes are not acknowledged
    arrived: NDArray[np.bool_]  # per such edge: the bytes arrive, their acknowledgements do not


def cuts(fabric: Fabric, events: tuple[FaultEvent, ...]) -> tuple[Cut, ...]:
    return tuple(_cut(fabric, one) for one in events if one.kind in (FaultKind.HANG_NODE, FaultKind.HANG_LINK))


def _cut(fabric: Fabric, one: FaultEvent) -> Cut:
    if one.kind is FaultKind.HANG_NODE:
        nics = np.flatnonzero(fabric.node == one.at)
        unacked = np.flatnonzero(np.isin(fabric.source, nics) ^ np.isin(fabric.target, nics))
        return Cut(one.from_s, unacked, np.zeros(unacked.size, dtype=bool))
    forth = (fabric.source == one.at) & (fabric.target == one.to)
    back = (fabric.source == one.to) & (fabric.target == one.at)  # its acknowledgements take the dead direction
    unacked = np.flatnonzero(forth | back)
    return Cut(one.from_s, unacked, back[unacked])


def unacked_edges(
    of_now: tuple[Cut, ...], fabric: Fabric, at_s: float, reported: NDArray[np.bool_]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return (edges, whether the receiver's counter shows the bytes), as reporting agents observe them."""
    known = [cut for cut in of_now if at_s >= cut.from_s + _CUT_KNOWN_S]
    if not known:
        return np.empty(0, np.int64), np.empty(0, dtype=bool)
    unacked = np.concatenate([cut.unacked for cut in known])
    came = np.concatenate([cut.arrived for cut in known]) & reported[fabric.node[fabric.target[unacked]]]
    reporting = reported[fabric.node[fabric.source[unacked]]]
    return unacked[reporting], came[reporting]


@dataclass(frozen=True, slots=True)
class Progress:
    at_s: float
    entered: Ints  # [kind of group, rank], counted from an arbitrary step
    finished: Ints
    reported: NDArray[np.bool_]  # per rank
    stamp_s: NDArray[np.float64]  # per node, by its own clock: its last report
    alive: NDArray[np.int8]  # per rank, by the independent source: 1 yes, 0 no, -1 unknown
    gone: NDArray[np.bool_]  # per rank: its agent finds no process
    saving: NDArray[np.bool_]  # per rank: its heartbeat reports a phase outside the training loop
    step_s: float  # the usual step of the job
    unacked: Ints  # [edge of the fabric]: sent, with two failed retransmissions
    arrived: NDArray[np.bool_]  # per such edge: the receiver's counter shows the bytes


class StallPlane:
    def __init__(self, cluster: Cluster, skew_s: NDArray[np.float64], *, seed: int) -> None:
        self._cluster, self._skew_s, self._seed = cluster, skew_s, seed
        rng = np.random.default_rng([seed, 9])
        self._phase_s = rng.uniform(0.0, BEAT_S, cluster.shape.nodes)
        self.unknown = rng.random(cluster.shape.nodes) < _UNKNOWN  # by the independent source
        self._planned_for: tuple[FaultEvent, ...] = ()
        self._plan: Timetable | None = None
        self._cuts: tuple[Cut, ...] = ()

    def between(
        self, from_s: float, to_s: float, *, reported: NDArray[np.bool_], events: Sequence[FaultEvent]
    ) -> Iterator[Progress]:
        stalling = tuple(one for one in events if one.kind in _STALLING)
        if not stalling:
            self._planned_for, self._plan = (), None
            return
        if stalling != self._planned_for or self._plan is None:
            begin_s = min(one.from_s for one in stalling) - _LEAD_S
            # The restart of the job after the event is not simulated.
            until_s = max(one.to_s for one in stalling) + 2 * STEP_S
            self._plan = timetable(self._cluster, list(stalling), from_s=begin_s, to_s=until_s, seed=self._seed)
            self._planned_for, self._cuts = stalling, cuts(self._cluster.fabric, stalling)
        for at_s in _ticks(from_s, to_s, stalling):
            yield self._progress(at_s, self._plan, reported, stalling)

    def _progress(
        self, at_s: float, plan: Timetable, reported: NDArray[np.bool_], stalling: tuple[FaultEvent, ...]
    ) -> Progress:
        per_node = self._cluster.shape.per_node
        stamp_s = at_s + self._skew_s - np.mod(at_s + self._skew_s - self._phase_s, BEAT_S)
        report_s = stamp_s - self._skew_s  # each node's last report, by the true clock
        entered, finished = plan.counts_at(np.repeat(report_s, per_node))
        reported, alive = reported.copy(), np.where(self.unknown, -1, 1).astype(np.int8)
        gone, saving = np.zeros(reported.size, dtype=bool), np.zeros(reported.size, dtype=bool)
        for one in stalling:
            if one.kind is FaultKind.CRASH and at_s >= one.from_s and takes_machine(one):
                reported[one.at] = False  # only the independent source observes that the machine has stopped
                alive[one.at] = 0 if at_s >= one.from_s + _PING_S and not self.unknown[one.at] else alive[one.at]
            elif one.kind is FaultKind.CRASH and at_s >= one.from_s:
                gone[one.at] |= report_s[one.at] >= one.from_s
            elif one.kind is FaultKind.PAUSE and one.from_s <= at_s < one.to_s:
                saving[writing_nodes(self._cluster)] = True
        unacked, arrived = unacked_edges(self._cuts, self._cluster.fabric, at_s, reported)
        wide = [np.repeat(values, per_node) for values in (reported, gone & reported, saving & reported)]
        return Progress(
            at_s=at_s,
            entered=entered,
            finished=finished,
            reported=wide[0],
            stamp_s=stamp_s,
            alive=np.repeat(alive, per_node),
            gone=wide[1],
            saving=wide[2],
            step_s=STEP_S,
            unacked=unacked,
            arrived=arrived,
        )


def _ticks(from_s: float, to_s: float, stalling: tuple[FaultEvent, ...]) -> list[float]:
    last_s = max(one.from_s + _SILENCE_SHOWN_S if one.kind is FaultKind.SILENCE else one.to_s for one in stalling)
    settled_s = max(one.from_s for one in stalling) + _SETTLED_S
    ticks = np.arange(np.ceil(from_s / BEAT_S), np.ceil(min(to_s, last_s) / BEAT_S))
    sparse = round(_SPARSE_S / BEAT_S)
    return [float(tick * BEAT_S) for tick in ticks if tick * BEAT_S < settled_s or tick % sparse == 0]
