"""One stream in; windows to the joint fit and the straggler detector; their diagnoses out.

The straggler detector uses shorter windows, because it counts no bytes and the first window of a run is partial.
Memory: two sums of each pair and each rank, and `learn_windows` of them until the edges are settled.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from faults.detector import Job
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.large_jobs import traffic_graph as of_edges
from faults.large_jobs.compute_gaps import Computing, Gaps, Steps
from faults.large_jobs.pairs import OUTSIDE, Pair, Pairs, Sum, Trains
from faults.large_jobs.parallel_groups import roles_of
from faults.large_jobs.settings import JobwideSettings
from faults.large_jobs.traffic_graph import Edges
from faults.large_jobs.windows import Windows
from faults.localisation import LocalisationDetector, LocalisationState
from faults.observations import (
    Collective,
    Heartbeat,
    Observation,
    PointToPoint,
    Probe,
    ProbeDeduplicator,
    ProbeReturned,
    Socket,
)
from faults.stragglers import Stragglers, StragglerState

Place = tuple[str, str, int | None, int | None, str | None]


class _Open:
    __slots__ = ("steps", "sums", "trains")

    def __init__(self) -> None:
        self.sums: dict[Pair, Sum] = {}
        self.trains = Trains()
        self.steps = Steps()


class _Fitted:
    """The settled edges, and the state of their localisation."""

    def __init__(self, edges: Edges, settings: JobwideSettings) -> None:
        self.edges, self._settings = edges, settings
        self._localiser = LocalisationDetector(edges.fabric, settings.localiser)
        self._state: LocalisationState = self._localiser.start()
        self._unknown = 0  # windows in a row

    @property
    def outdated(self) -> bool:
        """Return whether the job has come back with other pairs."""
        return self._unknown >= self._settings.relearn_windows

    def step(self, index: int, sums: dict[Pair, Sum], trains: Trains, *, stood: bool = False) -> tuple[Diagnosis, ...]:
        """Process one window.  `stood`: busy time measures no bandwidth while the job stands."""
        from_s = index * self._settings.window_s
        to_s = from_s + self._settings.window_s
        counted = {pair: total for pair, total in sums.items() if pair[1] == OUTSIDE} if stood else sums
        window = of_edges.window(self.edges, counted, self._settings, from_s=from_s, to_s=to_s, trains=trains)
        self._state, diagnoses = self._localiser.step(self._state, window)
        if not stood:
            self._unknown = self._unknown + 1 if of_edges.unknown(self.edges, sums) else 0
        return diagnoses


class LargeJobDetector:
    """A `Detector` of one job, with or without known leaves."""

    def __init__(self, job: Job, settings: JobwideSettings | None = None) -> None:
        self.settings = settings or JobwideSettings()
        self._job = job
        self._pairs = Pairs(job.nodes, self.settings.most_pairs)
        self._ends = ProbeDeduplicator(job.nodes, most=self.settings.most_pairs)
        self._computing = Computing(job)
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
        """Return the number of stored counters and sums."""
        sums = (*(opened.sums for opened in self._open), *(sums for _, sums, _ in self._learning))
        trains = (*(opened.trains for opened in self._open), *(trains for _, _, trains in self._learning))
        kept = len(self._pairs) + len(self._ends)
        return kept + sum(map(len, sums)) + sum(len(each.of) for each in trains)

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
            self._computing.take(observation, opened.steps, Gaps() if gaps is None else gaps)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """Return the active diagnoses since the last closed window."""
        gaps, windows = self._gaps.over(now_s), self._open.over(now_s)
        for index, window in gaps:
            length_s = self._gaps.length_s
            gaps_s = self._computing.gaps(Gaps() if window is None else window)
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
        self._computing.close(of.steps, (index + 1) * window_s)
        stood = self._computing.stood(of.steps, window_s)
        if self._fitted is None:
            if not stood:
                self._learn(index, of.sums, of.trains)
            return
        if stood and not of.trains.of:
            return
        self._wires = self._fitted.step(index, of.sums, of.trains, stood=stood)
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
            isolate = diagnosis.isolate and self._costs(diagnosis)
            changed = {"detected_s": reported_s[place], "isolate": isolate, "switch": self._switch(diagnosis)}
            yield diagnosis.model_copy(update=changed)
        self._reported_s = reported_s

    def _switch(self, diagnosis: Diagnosis) -> str | None:
        if diagnosis.scope is not Scope.LEAF or diagnosis.switch is None:
            return diagnosis.switch
        return str(self._names[int(diagnosis.switch.removeprefix("leaf-"))])

    def _costs(self, diagnosis: Diagnosis) -> bool:
        """Return whether steps are longer since the onset: no node is isolated for a fault without effect.

        Without a baseline of steps, an edge is compared with edges that do the same; a node that computed longer from
        the start may have more to do.
        """
        chance = self._computing.chance_of_no_harm(diagnosis.onset_s)
        if chance is None:
            return diagnosis.fault is FaultClass.COMM_SLOW
        return chance <= self.settings.chance_of_harm
