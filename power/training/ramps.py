"""Limits on how fast a training job's power rises after a trough (docs/explanation/power/training.md, 4).

Two methods can be combined.  A ramp: the clock climbs so that power rises by at most so many watts a second; the work
takes longer meanwhile.  A filler: waiting boards run empty work at `floor_w`, which costs energy and no time.
Power at clock c is trough + (compute - trough) * c^a, speed 1 / (1 + k * (1/c - 1)), as in the simulator.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats
from power.training.swings import METER_S, SENSITIVITY, largest_rise_w
from power.workload.workload import TrainingJob

STEP_S = 0.005
MIN_CLOCK = 0.2  # share left by the power brake; a ramp begins no lower
FLOORS = 21
MAX_ITERATIONS = 1_000  # iterations that one may take; a slower ramp never gets there
SAME_W = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Smoothed:
    floor_w: float
    rise_w_per_s: float
    iteration_s: float
    energy_j: float
    slowdown: float  # over the plain iteration
    energy_ratio: float
    rise_w: float  # the largest within the meter's window
    watts: Floats  # by STEP_S


def smoothed(
    job: TrainingJob, *, rise_w_per_s: float, floor_w: float = 0.0, sensitivity: float = SENSITIVITY
) -> Smoothed:
    """Return the iteration of one server of a job with a ramp and a filler."""
    if not rise_w_per_s > 0:
        raise RuleError([(("rise_w_per_s",), f"must be above 0, got {rise_w_per_s:g}")])
    if not 0 <= floor_w <= job.compute_w:
        raise RuleError([(("floor_w",), f"must be from 0 to {job.compute_w:g}, what computing draws, got {floor_w:g}")])
    rest_w = max(floor_w, job.trough_w)
    work_s, exchange_s = job.iteration_s * job.compute_share, job.iteration_s * (1 - job.compute_share)
    computing = _ramp(job, rest_w, rise_w_per_s, work_s, sensitivity)
    exchanging = np.full(round(exchange_s / STEP_S), rest_w)
    watts = np.concatenate((computing, exchanging))
    plain_j = work_s * job.compute_w + exchange_s * job.trough_w
    iteration_s, energy_j = len(watts) * STEP_S, float(watts.sum() * STEP_S)
    return Smoothed(
        floor_w=rest_w,
        rise_w_per_s=rise_w_per_s,
        iteration_s=iteration_s,
        energy_j=energy_j,
        slowdown=max(0.0, iteration_s / job.iteration_s - 1),
        energy_ratio=energy_j / plain_j,
        rise_w=largest_rise_w(watts, step_s=STEP_S),
        watts=watts,
    )


def options_under(
    job: TrainingJob, *, rise_w: float, within_s: float = METER_S, sensitivity: float = SENSITIVITY
) -> tuple[Smoothed, ...]:
    """Return the options that keep a server's largest rise in the meter's window within `rise_w`, without dominated
    ones.

    From a floor of at most `rise_w` below computing no ramp is needed; below that the ramp takes the whole window.
    """
    if not rise_w > 0:
        raise RuleError([(("rise_w",), f"must be above 0, got {rise_w:g}")])
    found = list(_tried(job, rise_w, within_s, sensitivity))
    ordered = sorted(found, key=lambda one: (one.slowdown, one.energy_ratio))
    return tuple(_undominated(ordered))


def _tried(job: TrainingJob, rise_w: float, within_s: float, sensitivity: float) -> Iterator[Smoothed]:
    lowest_w, enough_w = job.trough_w, max(job.trough_w, job.compute_w - rise_w)
    yield smoothed(job, rise_w_per_s=np.inf, floor_w=enough_w, sensitivity=sensitivity)
    if enough_w <= lowest_w:
        return
    for floor_w in np.linspace(lowest_w, enough_w, FLOORS)[:-1]:
        one = smoothed(job, rise_w_per_s=rise_w / within_s, floor_w=float(floor_w), sensitivity=sensitivity)
        if one.rise_w <= rise_w + rise_w / within_s * STEP_S + SAME_W:
            yield one


def _undominated(ordered: Sequence[Smoothed]) -> Iterator[Smoothed]:
    least = np.inf
    for one in ordered:
        if one.energy_ratio < least - 1e-9:
            least = one.energy_ratio
            yield one


def _ramp(job: TrainingJob, rest_w: float, rise_w_per_s: float, work_s: float, sensitivity: float) -> Floats:
    """Return the power by step until the work is done."""
    swing_w = job.compute_w - job.trough_w
    if swing_w <= 0 or rise_w_per_s == np.inf:
        return np.full(max(1, round(work_s / STEP_S)), job.compute_w)
    climb_s = (job.compute_w - rest_w) / rise_w_per_s
    steps = int((climb_s + work_s) * 2 / STEP_S) + 2
    while True:
        at = (np.arange(steps) + 1) * STEP_S
        watts = np.minimum(job.compute_w, rest_w + rise_w_per_s * at)
        above = np.clip((watts - job.trough_w) / swing_w, 0, 1)
        clocks = np.maximum(MIN_CLOCK, above ** (1 / job.clock_exponent) if job.clock_exponent else above)
        done_s = np.cumsum(STEP_S / (1 + sensitivity * (1 / clocks - 1)))
        if done_s[-1] >= work_s:
            lowest_w = job.trough_w + swing_w * MIN_CLOCK**job.clock_exponent
            return np.asarray(np.maximum(watts, lowest_w)[: int(np.searchsorted(done_s, work_s - STEP_S / 2)) + 1])
        steps *= 2
        if steps * STEP_S > MAX_ITERATIONS * job.iteration_s + climb_s * 2:
            raise RuleError([(("rise_w_per_s",), f"is too slow for an iteration of {job.iteration_s:g} s")])
