"""The swings of training jobs: power over an iteration, and its largest rise (docs/explanation/power/training.md, 3).

A profile is power at even steps of one period, repeated.
"""

from math import ceil

import numpy as np

from power.arrays import Floats
from power.workload.workload import TrainingJob

SENSITIVITY = 1.0  # of computing to its clock, as the simulator has it
METER_S = 2.0  # POLCA reads every two seconds and calls that the largest rise


def at_clock(job: TrainingJob, clock: float, *, sensitivity: float = SENSITIVITY) -> TrainingJob:
    """Return the job at a lower clock: computing takes longer and draws less."""
    computing_s = job.iteration_s * job.compute_share * (1 + sensitivity * (1 / clock - 1))
    iteration_s = job.iteration_s * (1 - job.compute_share) + computing_s
    changed = {
        "iteration_s": iteration_s,
        "compute_share": computing_s / iteration_s,
        "compute_w": job.peak_w(clock),
    }
    return job.model_copy(update=changed)


def stretched(job: TrainingJob, period_s: float, *, sensitivity: float = SENSITIVITY) -> TrainingJob:
    """Return the job at the clock at which its iterations take `period_s`."""
    longer_s = max(0.0, period_s - job.iteration_s)
    clock = 1 / (1 + longer_s / (job.iteration_s * job.compute_share) / sensitivity)
    return at_clock(job, clock, sensitivity=sensitivity)


def swing_of(job: TrainingJob, *, steps: int, clock: float = 1.0) -> Floats:
    """Return the power of all servers of a job together: they compute, then exchange."""
    at = (np.arange(steps) + 0.5) / steps
    watts = np.where(at < job.compute_share, job.peak_w(clock), job.trough_w)
    return np.asarray(watts * job.servers)


def widened(watts: Floats, slip_s: float, *, step_s: float) -> Floats:
    """Return the most that a job may draw at each step if it may be early or late by `slip_s`."""
    steps = min(len(watts), ceil(slip_s / step_s - 1e-9))
    found = watts
    for shift in range(1, steps + 1):
        found = np.maximum(found, np.maximum(np.roll(watts, shift), np.roll(watts, -shift)))
    return np.asarray(found)


def largest_rise_w(watts: Floats, *, step_s: float, within_s: float = METER_S) -> float:
    """Return the largest rise of power within a time, for a periodic profile."""
    steps, period = max(1, round(within_s / step_s)), len(watts)
    lowest = watts
    for shift in range(1, min(steps, period) + 1):
        lowest = np.minimum(lowest, np.roll(watts, shift))
    return float(np.max(watts - lowest))
