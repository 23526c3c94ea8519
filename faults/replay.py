"""A recorded job through a watcher, as it would have gone live: every observation when it was known, never before."""

from collections.abc import Iterable, Iterator
from math import floor

from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observations import Observation

Act = Observation | float  # seen, or judged at that moment


def acts(observations: Iterable[Observation], *, judge_s: float) -> Iterator[Act]:
    """The observations, with a judgement after each period in which there was any, and one at the end."""
    due_s: float | None = None
    for observation in observations:
        if due_s is not None and observation.at_s > due_s:
            yield due_s
            due_s = None
        if due_s is None:
            due_s = (floor(observation.at_s / judge_s) + 1) * judge_s
        yield observation
    if due_s is not None:
        yield due_s


def run(watcher: FaultMonitor, what: Iterable[Act]) -> tuple[Diagnosis, ...]:
    """Do it; every fault that was found, in the order of detection."""
    for act in what:
        if isinstance(act, Observation):
            watcher.observe(act)
        else:
            watcher.evaluate(act)
    return watcher.diagnoses()


def replay(
    job: Job, observations: Iterable[Observation], settings: MonitorSettings | None = None
) -> tuple[Diagnosis, ...]:
    """The faults of a recording.  Times are on the observations' clock."""
    settings = settings or MonitorSettings()
    return run(FaultMonitor(job, settings), acts(observations, judge_s=settings.judge_s))
