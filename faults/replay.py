"""Replays a recording through the fault monitor: each observation at the time when it was known, as in a live job."""

from collections.abc import Iterable, Iterator
from math import floor

from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observations import Observation

Call = Observation | float  # an observation, or the time of an evaluation


def calls(observations: Iterable[Observation], *, period_s: float) -> Iterator[Call]:
    """Return the observations, with an evaluation after each period that has any, and one at the end."""
    due_s: float | None = None
    for observation in observations:
        if due_s is not None and observation.at_s > due_s:
            yield due_s
            due_s = None
        if due_s is None:
            due_s = (floor(observation.at_s / period_s) + 1) * period_s
        yield observation
    if due_s is not None:
        yield due_s


def run(monitor: FaultMonitor, inputs: Iterable[Call]) -> tuple[Diagnosis, ...]:
    """Make the calls; return every fault in the order of detection."""
    for call in inputs:
        if isinstance(call, Observation):
            monitor.observe(call)
        else:
            monitor.evaluate(call)
    return monitor.diagnoses()


def replay(
    job: Job, observations: Iterable[Observation], settings: MonitorSettings | None = None
) -> tuple[Diagnosis, ...]:
    """Return the faults of a recording.  Times are on the observations' clock."""
    settings = settings or MonitorSettings()
    return run(FaultMonitor(job, settings), calls(observations, period_s=settings.judge_s))
