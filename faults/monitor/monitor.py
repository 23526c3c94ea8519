"""The live detector: hangs, crashes and slowness over one memory, one verdict per fault.

It holds no clock and no socket: whoever receives observations feeds them in the order in which they become known, and
asks for a judgement as often as agents look.  The same calls give the same verdicts, so a tape of them is a proof.
"""

from faults.crashes import crashes
from faults.detector import Detector, Job
from faults.diagnosis import Diagnosis
from faults.hangs import hangs
from faults.job_state import JobState
from faults.large_jobs import JobwideDetector
from faults.monitor.combined_detector import CombinedDetector
from faults.monitor.dedup import FaultDedup
from faults.monitor.episode import Episode
from faults.monitor.settings import MonitorSettings
from faults.observations import Observation
from faults.slow.detector import SlowDetector


class FaultMonitor:
    """A `Detector` made of all others."""

    def __init__(self, job: Job, settings: MonitorSettings | None = None) -> None:
        self.job = job
        self.settings = settings or MonitorSettings()
        self._state = JobState(job)
        self._slow = _slow(job, self.settings)
        self._seen = FaultDedup(self.settings.same_fault_s)
        self._episode = Episode()
        self._standing_until_s = float("-inf")

    def observe(self, observation: Observation) -> None:
        """Take one observation in."""
        self._state.observe(observation)
        if self._slow is not None:
            self._slow.observe(observation)

    def evaluate(self, now_s: float) -> tuple[Diagnosis, ...]:
        """The faults that are believed now."""
        standing = self._standing(now_s)
        slow = () if self._slow is None else tuple(self._slow.evaluate(now_s))
        if standing:
            self._standing_until_s = now_s
            return self._seen.say(standing, now_s=now_s)
        if now_s - self._standing_until_s < self.settings.settle_s:
            return ()
        return self._seen.say(slow, now_s=now_s)

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Every fault so far, in the order of detection."""
        return self._seen.diagnoses()

    def _standing(self, now_s: float) -> tuple[Diagnosis, ...]:
        if self._episode.over(self._state.progress_s):
            self._episode = Episode()
        episode, settings = self._episode, self.settings
        found: tuple[Diagnosis, ...] = ()
        if not episode.open:
            found = crashes(self._state, settings.crashes, now_s=now_s)
        if not found and not episode.crashed:
            found = hangs(self._state, settings.hangs, now_s=now_s)
        return episode.tell(found, now_s=now_s)


def _slow(job: Job, settings: MonitorSettings) -> Detector | None:
    """Of few nodes every look is judged, each pair beside each; of many windows are; where leaves are known, both."""
    if settings.slow is None:
        return None
    if job.nodes > settings.slow.most_nodes:
        return JobwideDetector(job, settings.jobwide)
    quick = SlowDetector(job, settings.slow)
    return quick if job.fabric is None else CombinedDetector(quick, JobwideDetector(job, settings.jobwide))
