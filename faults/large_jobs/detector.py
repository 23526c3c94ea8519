"""One stream in; windows to the joint fit and the straggler detector; their diagnoses out.

The straggler detector uses shorter windows, because it counts no bytes and the first window of a run is partial.
Memory: two sums of each pair and each rank, and `learn_windows` of them until the edges are settled.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor, isfinite
from typing import Final, Generic, TypeVar

import numpy as np

from faults.detector import Job
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.fabric import Ints
from faults.large_jobs import traffic_graph as of_edges
from faults.large_jobs.compute_gaps import Gaps, GapTracker, Steps
from faults.large_jobs.settings import LargeJobSettings
from faults.large_jobs.traffic_graph import OUTSIDE, Edges, Pair, Pairs, Sum, Trains
from faults.localisation import LocalisationDetector, LocalisationState
from faults.observations import Collective, Heartbeat, Observation, PointToPoint, Probe, ProbeReturned, Socket
from faults.probe_dedup import ProbeDeduplicator
from faults.stragglers import Roles, Stragglers, StragglerState

MIN_NODES: Final = 3  # nodes of a group, for a median
MAX_OPEN: Final = 4  # windows: a clock that is so far ahead is broken
MAX_SILENT: Final = 720  # windows: half an hour of 2.5 s without an observation forgets as much as a day
Of = TypeVar("Of")
Place = tuple[str, str, int | None, int | None, str | None]


def roles_of(job: Job) -> Roles:
    """Return the pipeline stages and replicas of nodes, as far as the job's groups show them.

    Disjoint groups that hold all nodes divide the job: into stages or into replicas.  Which is which is unknown, and
    matters little: the common part of a division's nodes is removed.  The division into the largest groups gives the
    level, the next one the replicas.
    """
    wholes = {frozenset(job.rank_node[rank] for rank in group): None for group in job.groups}
    ways = [way for way in _divisions(wholes) if sum(map(len, way)) == job.nodes]
    ways.sort(key=len)
    alike = Roles.alike(job.nodes)
    return Roles(
        _numbered(ways[0], job.nodes) if ways else alike.stage,
        _numbered(ways[1], job.nodes) if len(ways) > 1 else alike.replica,
    )


def _divisions(groups: Iterable[frozenset[int]]) -> list[list[frozenset[int]]]:
    """Divide the groups: each goes to the first division whose groups are as large and share no node with it."""
    found: list[tuple[int, set[int], list[frozenset[int]]]] = []
    for group in groups:
        if len(group) < MIN_NODES:
            continue
        for size, taken, way in found:
            if size == len(group) and not taken & group:
                taken.update(group)
                way.append(group)
                break
        else:
            found.append((len(group), set(group), [group]))
    return [way for _, _, way in found if len(way) > 1]


def _numbered(way: list[frozenset[int]], nodes: int) -> Ints:
    number = np.zeros(nodes, dtype=np.int64)
    for at, group in enumerate(way):
        number[list(group)] = at
    return number


class Windows(Generic[Of]):
    """Window k lasts from k length_s to (k + 1) length_s on the clock of the stream, and closes `late_s` after that."""

    def __init__(self, new: Callable[[], Of], *, length_s: float, late_s: float) -> None:
        self._new, self.length_s, self._late_s = new, length_s, late_s
        self._open: dict[int, Of] = {}
        self._next: int | None = None  # the next to close

    def __iter__(self) -> Iterator[Of]:
        return iter(self._open.values())

    def at(self, at_s: float) -> Of | None:
        """Return the open window at a time; None if that window is closed already or the time is impossible."""
        if not isfinite(at_s):
            return None
        index = floor(at_s / self.length_s)
        if self._next is None:
            self._next = index
        if not self._next <= index < self._next + MAX_OPEN:
            return None
        found = self._open.get(index)
        if found is None:
            found = self._open[index] = self._new()
        return found

    def over(self, now_s: float) -> list[tuple[int, Of | None]]:
        """Return the windows closed since the last call, in order; None for a window without observations."""
        if self._next is None or not isfinite(now_s):
            return []
        until = floor((now_s - self._late_s) / self.length_s)
        if until + MAX_OPEN < self._next:  # the first observation had a clock far ahead
            self._next = until
            self._open.clear()
        if until <= self._next:
            return []
        begun = {index for index in self._open if index < until}
        indices = sorted(begun.union(range(max(self._next, until - MAX_SILENT), until)))
        self._next = until
        return [(index, self._open.pop(index, None)) for index in indices]


@dataclass(slots=True)
class _Open:
    sums: dict[Pair, Sum] = field(default_factory=dict)
    trains: Trains = field(default_factory=Trains)
    steps: Steps = field(default_factory=Steps)


class _Fitted:
    def __init__(self, edges: Edges, settings: LargeJobSettings) -> None:
        self.edges, self._settings = edges, settings
        self._localiser = LocalisationDetector(edges.fabric, settings.localiser)
        self._state: LocalisationState = self._localiser.start()
        self._unknown = 0  # windows in a row

    @property
    def outdated(self) -> bool:
        """Return whether the job has come back with other pairs."""
        return self._unknown >= self._settings.relearn_windows

    def step(
        self, index: int, sums: dict[Pair, Sum], trains: Trains, *, stopped: bool = False
    ) -> tuple[Diagnosis, ...]:
        """Process one window.  `stopped`: busy time measures no bandwidth while the job is stopped."""
        from_s = index * self._settings.window_s
        to_s = from_s + self._settings.window_s
        counted = {pair: total for pair, total in sums.items() if pair[1] == OUTSIDE} if stopped else sums
        window = of_edges.window(self.edges, counted, self._settings, from_s=from_s, to_s=to_s, trains=trains)
        self._state, diagnoses = self._localiser.step(self._state, window)
        if not stopped:
            self._unknown = self._unknown + 1 if of_edges.unknown(self.edges, sums) else 0
        return diagnoses


class LargeJobDetector:
    """A `Detector` of one job, with or without known leaves."""

    def __init__(self, job: Job, settings: LargeJobSettings | None = None) -> None:
        self.settings = settings or LargeJobSettings()
        self._job = job
        self._pairs = Pairs(job.nodes, self.settings.max_pairs)
        self._ends = ProbeDeduplicator(job.nodes, max_pairs=self.settings.max_pairs)
        self._gap_tracker = GapTracker(job)
        late_s = self.settings.late_s
        self._open = Windows(_Open, length_s=self.settings.window_s, late_s=late_s)
        self._gaps = Windows(Gaps, length_s=self.settings.gap_window_s, late_s=late_s)
        self._learning: list[tuple[int, dict[Pair, Sum], Trains]] = []
        self._fitted: _Fitted | None = None
        self._stragglers = Stragglers(roles_of(job), self.settings.stragglers)
        self._late: StragglerState = self._stragglers.start()
        self._names = () if job.fabric is None else tuple(np.unique(job.fabric.leaves).tolist())
        self._wires: tuple[Diagnosis, ...] = ()
        self._nodes: tuple[Diagnosis, ...] = ()
        self._reported_s: dict[Place, float] = {}
        self._diagnoses: tuple[Diagnosis, ...] = ()

    def __len__(self) -> int:
        sums = (*(opened.sums for opened in self._open), *(sums for _, sums, _ in self._learning))
        trains = (*(opened.trains for opened in self._open), *(trains for _, _, trains in self._learning))
        kept = len(self._pairs) + len(self._ends)
        return kept + sum(map(len, sums)) + sum(map(len, trains))

    def observe(self, observation: Observation) -> None:
        if not isinstance(observation.values, Socket | Collective | Heartbeat | PointToPoint | Probe | ProbeReturned):
            return
        opened = self._open.at(observation.at_s) if 0 <= observation.node < self._job.nodes else None
        if opened is None:
            return
        if isinstance(observation.values, Socket):
            self._pairs.take(observation, observation.values, opened.sums)
        elif isinstance(observation.values, Probe | ProbeReturned):
            reading = self._ends.reading(observation)
            if reading is not None and isinstance(reading.values, Probe):
                opened.trains.take(reading, reading.values)
        else:
            gaps = self._gaps.at(observation.at_s)  # None: closed already; the step continues
            self._gap_tracker.take(observation, opened.steps, Gaps() if gaps is None else gaps)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """Return the active diagnoses since the last closed window."""
        gaps, windows = self._gaps.over(now_s), self._open.over(now_s)
        for index, window in gaps:
            length_s = self._gaps.length_s
            gaps_s = self._gap_tracker.gaps(Gaps() if window is None else window)
            self._late, self._nodes = self._stragglers.step(
                self._late, gaps_s, (index + 1) * length_s, window_s=length_s
            )
        for index, of in windows:
            if of is not None:  # otherwise nothing was observed
                self._close(index, of)
        if gaps or windows:
            self._diagnoses = tuple(self._diagnosis(now_s))
        return self._diagnoses

    def _close(self, index: int, of: _Open) -> None:
        window_s = self.settings.window_s
        self._gap_tracker.close(of.steps, (index + 1) * window_s)
        stopped = self._gap_tracker.stopped(of.steps, window_s)
        if self._fitted is None:
            if not stopped:
                self._learn(index, of.sums, of.trains)
            return
        if stopped and not of.trains:
            return
        self._wires = self._fitted.step(index, of.sums, of.trains, stopped=stopped)
        if self._fitted.outdated:
            self._fitted, self._wires = None, ()

    def _learn(self, index: int, sums: dict[Pair, Sum], trains: Trains) -> None:
        """Settle the edges from the first windows, then evaluate these windows like all others."""
        self._learning.append((index, sums, trains))
        if len(self._learning) < self.settings.learn_windows:
            return
        windows, self._learning = self._learning, []
        found = of_edges.settled([each for _, each, _ in windows], self._job, self.settings)
        if found is None:
            return
        self._fitted = _Fitted(found, self.settings)
        for at, old, probes in windows:
            self._wires = self._fitted.step(at, old, probes)

    def _diagnosis(self, now_s: float) -> Iterator[Diagnosis]:
        """Iterate over the diagnoses by key, with the first detection time."""
        reported_s: dict[Place, float] = {}
        for diagnosis in (*self._wires, *self._nodes):
            place = (diagnosis.fault, diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch)
            reported_s[place] = self._reported_s.get(place, now_s)
            isolate = diagnosis.isolate and self._lengthens_steps(diagnosis)
            changed = {"detected_s": reported_s[place], "isolate": isolate, "switch": self._switch(diagnosis)}
            yield diagnosis.model_copy(update=changed)
        self._reported_s = reported_s

    def _switch(self, diagnosis: Diagnosis) -> str | None:
        if diagnosis.scope is not Scope.LEAF or diagnosis.switch is None:
            return diagnosis.switch
        return str(self._names[int(diagnosis.switch.removeprefix("leaf-"))])

    def _lengthens_steps(self, diagnosis: Diagnosis) -> bool:
        """Return whether steps are longer since the onset: a fault without effect justifies no quarantine.

        Without a baseline of steps, an edge is compared with edges that do the same; a node that computed longer from
        the start may have more to do.
        """
        chance = self._gap_tracker.chance_of_no_harm(diagnosis.onset_s)
        if chance is None:
            return diagnosis.fault is FaultClass.COMM_SLOW
        return chance <= self.settings.chance_of_harm
