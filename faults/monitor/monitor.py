"""The live detector: hangs, crashes and slowness over one memory, one verdict per fault.

It holds no clock and no socket: whoever receives observations feeds them in the order in which they become known, and
asks for a judgement as often as agents look.  The same calls give the same verdicts, so a tape of them is a proof.
"""

from faults.crashes import crashes
from faults.detector import Detector, Job
from faults.diagnosis import Verdict
from faults.hangs import hangs
from faults.job_state import Ledger
from faults.large_jobs import JobwideDetector
from faults.monitor.combined_detector import WithLeaves
from faults.monitor.dedup import FaultsSeen
from faults.monitor.episode import Episode
from faults.monitor.settings import WatcherSettings
from faults.observations import Observation
from faults.slow.detector import SlowDetector


class Watcher:
    """A `Detector` made of all others."""

    def __init__(self, job: Job, settings: WatcherSettings | None = None) -> None:
        self.job = job
        self.settings = settings or WatcherSettings()
        self._ledger = Ledger(job)
        self._slow = _slow(job, self.settings)
        self._seen = FaultsSeen(self.settings.same_fault_s)
        self._episode = Episode()
        self._standing_until_s = float("-inf")

    def see(self, observation: Observation) -> None:
        """Take one observation in."""
        self._ledger.see(observation)
        if self._slow is not None:
            self._slow.see(observation)

    def judge(self, now_s: float) -> tuple[Verdict, ...]:
        """The faults that are believed now."""
        standing = self._standing(now_s)
        slow = () if self._slow is None else tuple(self._slow.judge(now_s))
        if standing:
            self._standing_until_s = now_s
            return self._seen.say(standing, now_s=now_s)
        if now_s - self._standing_until_s < self.settings.settle_s:
            return ()
        return self._seen.say(slow, now_s=now_s)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Every fault so far, in the order of detection."""
        return self._seen.verdicts()

    def _standing(self, now_s: float) -> tuple[Verdict, ...]:
        if self._episode.over(self._ledger.progress_s):
            self._episode = Episode()
        episode, settings = self._episode, self.settings
        found: tuple[Verdict, ...] = ()
        if not episode.open:
            found = crashes(self._ledger, settings.crashes, now_s=now_s)
        if not found and not episode.crashed:
            found = hangs(self._ledger, settings.hangs, now_s=now_s)
        return episode.tell(found, now_s=now_s)


def _slow(job: Job, settings: WatcherSettings) -> Detector | None:
    """Of few nodes every look is judged, each pair beside each; of many windows are; where leaves are known, both."""
    if settings.slow is None:
        return None
    if job.nodes > settings.slow.most_nodes:
        return JobwideDetector(job, settings.jobwide)
    quick = SlowDetector(job, settings.slow)
    return quick if job.fabric is None else WithLeaves(quick, JobwideDetector(job, settings.jobwide))
