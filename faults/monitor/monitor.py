"""The fault monitor: hangs, crashes and slowness over one job state, one diagnosis per fault.

The monitor has no clock and no socket.  Its caller passes observations in the order in which they become known, and
calls `evaluate` as often as agents sample.  Equal calls give equal diagnoses, so a log of the calls proves them.
"""

from collections.abc import Iterator, Sequence

from faults.crashes import crashes
from faults.detector import Detector, Job
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.hangs import hangs
from faults.job_state import JobState
from faults.large_jobs import LargeJobDetector
from faults.monitor.dedup import SWITCHES, FaultDedup, key_of
from faults.monitor.settings import MonitorSettings
from faults.observations import Observation
from faults.slow.detector import SlowDetector


class CombinedDetector:
    """The detectors of a small job with known leaves: the pairwise one is fast, the large-job fit finds switches.

    NICs and links   diagnoses of both; for the same node that of the pairwise detector
    switches         while the fit diagnoses a leaf or uplink, only NICs and links that the fit diagnoses too
    quarantine       of a NIC only if both detectors justify it
    ranks            diagnoses of both; for the same rank that of the pairwise detector

    The pairwise detector takes a slow leaf for several slow nodes.  The fit needs four windows: a diagnosis does
    not wait for it, a quarantine does.
    """

    def __init__(self, pairwise: Detector, fit: Detector) -> None:
        self._pairwise, self._fit = pairwise, fit

    def observe(self, observation: Observation) -> None:
        self._pairwise.observe(observation)
        self._fit.observe(observation)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        return tuple(combine(self._pairwise.evaluate(now_s), self._fit.evaluate(now_s)))


def combine(pairwise: Sequence[Diagnosis], fit: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    isolating = {key_of(diagnosis) for diagnosis in fit if diagnosis.isolate}
    fitted = {key_of(diagnosis) for diagnosis in fit}
    switch = any(diagnosis.scope in SWITCHES for diagnosis in fit)
    given, ends = set(), set[int]()
    for diagnosis in pairwise:
        key = key_of(diagnosis)
        if _is_network_fault(diagnosis):
            if switch and key not in fitted:
                continue
            ends |= _ends(diagnosis)
            yield diagnosis.model_copy(update={"isolate": diagnosis.isolate and key in isolating})
        else:
            yield diagnosis
        given.add(key)
    for diagnosis in fit:
        if key_of(diagnosis) not in given and not (_is_network_fault(diagnosis) and ends & _ends(diagnosis)):
            yield diagnosis


def _is_network_fault(diagnosis: Diagnosis) -> bool:
    return diagnosis.fault is FaultClass.COMM_SLOW and diagnosis.scope in (Scope.NODE, Scope.LINK)


def _ends(diagnosis: Diagnosis) -> set[int]:
    return {end for end in (diagnosis.node, diagnosis.peer) if end is not None}


class Episode:
    """A stall from its first diagnosis until the job continues.

    no diagnosis yet   crashes are evaluated first, then hangs
    after a hang       a stronger cause replaces a weaker one without `isolate`; vanished ranks are consequences
    after a crash      everything else is its cascade
    """

    def __init__(self) -> None:
        self._diagnoses: dict[tuple[FaultClass, int | None, int | None], Diagnosis] = {}
        self.since_s: float | None = None  # time of the first diagnosis

    def over(self, progress_s: float | None) -> bool:
        return self.since_s is not None and progress_s is not None and progress_s > self.since_s

    @property
    def crashed(self) -> bool:
        return any(diagnosis.fault is FaultClass.CRASH for diagnosis in self._diagnoses.values())

    @property
    def open(self) -> bool:
        return bool(self._diagnoses)

    def add(self, diagnoses: Sequence[Diagnosis], *, now_s: float) -> tuple[Diagnosis, ...]:
        for diagnosis in diagnoses:
            if any(_explains(other, diagnosis) for other in self._diagnoses.values()):
                continue
            self._diagnoses = {key: other for key, other in self._diagnoses.items() if not _replaces(diagnosis, other)}
            self._diagnoses[(diagnosis.fault, diagnosis.node, diagnosis.peer)] = diagnosis
        if self._diagnoses and self.since_s is None:
            self.since_s = now_s
        return tuple(self._diagnoses.values())


def _explains(earlier: Diagnosis, later: Diagnosis) -> bool:
    """Return whether the earlier diagnosis is of another place and more confident, or is the node of this link."""
    other = (earlier.fault, earlier.node, earlier.peer) != (later.fault, later.node, later.peer)
    return other and (later.confidence < earlier.confidence or _part_of(later, earlier))


def _replaces(later: Diagnosis, earlier: Diagnosis) -> bool:
    """Return whether the later diagnosis is elsewhere and more confident than a weak one, or the node of this link."""
    if (later.fault, later.node, later.peer) == (earlier.fault, earlier.node, earlier.peer):
        return False
    return _part_of(earlier, later) or (later.confidence > earlier.confidence and not earlier.isolate)


def _part_of(link: Diagnosis, node: Diagnosis) -> bool:
    return node.peer is None and link.peer is not None and node.node in (link.node, link.peer)


class FaultMonitor:
    def __init__(self, job: Job, settings: MonitorSettings | None = None) -> None:
        self.job = job
        self.settings = settings or MonitorSettings()
        self._state = JobState(job)
        self._slow = _slow(job, self.settings)
        self._dedup = FaultDedup(self.settings.same_fault_s)
        self._episode = Episode()
        self._stalled_until_s = float("-inf")

    def observe(self, observation: Observation) -> None:
        self._state.observe(observation)
        if self._slow is not None:
            self._slow.observe(observation)

    def evaluate(self, now_s: float) -> tuple[Diagnosis, ...]:
        stalled = self._stalled(now_s)
        slow = () if self._slow is None else tuple(self._slow.evaluate(now_s))
        if stalled:
            self._stalled_until_s = now_s
            return self._dedup.update(stalled, now_s=now_s)
        if now_s - self._stalled_until_s < self.settings.settle_s:
            return ()
        return self._dedup.update(slow, now_s=now_s)

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Return the last diagnosis of every fault so far, in the order of detection."""
        return self._dedup.diagnoses()

    def _stalled(self, now_s: float) -> tuple[Diagnosis, ...]:
        if self._episode.over(self._state.progress_s):
            self._episode = Episode()
        episode, settings = self._episode, self.settings
        found: tuple[Diagnosis, ...] = ()
        if not episode.open:
            found = crashes(self._state, settings.crashes, now_s=now_s)
        if not found and not episode.crashed:
            found = hangs(self._state, settings.hangs, now_s=now_s)
        return episode.add(found, now_s=now_s)


def _slow(job: Job, settings: MonitorSettings) -> Detector | None:
    """Create the pairwise detector for few nodes, the large-job detector for many, and both if the leaves are known."""
    if settings.slow is None:
        return None
    if job.nodes > settings.slow.max_nodes:
        return LargeJobDetector(job, settings.jobwide)
    pairwise = SlowDetector(job, settings.slow)
    return pairwise if job.fabric is None else CombinedDetector(pairwise, LargeJobDetector(job, settings.jobwide))
