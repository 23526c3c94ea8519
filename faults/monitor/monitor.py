"""The fault monitor: hangs, crashes and slowness over one job state, one diagnosis per fault.

The monitor has no clock and no socket.  Its caller passes observations in the order in which they become known, and
calls `evaluate` as often as agents sample.  Equal calls give equal diagnoses, so a log of the calls proves them.
"""

from faults.crashes import crashes
from faults.detector import Detector, Job
from faults.diagnosis import Diagnosis
from faults.hangs import hangs
from faults.job_state import JobState
from faults.large_jobs import LargeJobDetector
from faults.monitor.combined_detector import CombinedDetector
from faults.monitor.dedup import FaultDedup
from faults.monitor.episode import Episode
from faults.monitor.settings import MonitorSettings
from faults.observations import Observation
from faults.slow.detector import SlowDetector


class FaultMonitor:
    """A `Detector` that runs all detectors."""

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
    if job.nodes > settings.slow.most_nodes:
        return LargeJobDetector(job, settings.jobwide)
    pairwise = SlowDetector(job, settings.slow)
    return pairwise if job.fabric is None else CombinedDetector(pairwise, LargeJobDetector(job, settings.jobwide))
