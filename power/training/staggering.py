"""Staggering of the jobs behind one feed, so that their swings do not add up (docs/explanation/power/training.md, 3).

    minimise over offsets o    max over k of sum over j of w_j[(k - o_j) mod K]

where `w_j` is job j's power at K steps of the common period, widened by its slip until the next alignment.
Offsets are meaningful only among jobs of one period, so jobs form groups, each slowed to the longest period of its
group.  Groups drift against each other, so their peaks are added.

A breaker carries the peak of an iteration, not its mean, so a cap compares the row's share with the peak
(docs/explanation/power/training.md, 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats, Ints
from power.training.swings import largest_rise_w, stretched, swing_of, widened
from power.workload.workload import TrainingJob

STEPS = 96
RESTARTS = 24
MAX_TRIED = 20_000  # combinations for an exact enumeration
MAX_ROUNDS = 50
MIN_CLOCK = 0.2


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a job's iterations within the period of its group."""

    name: str
    period_s: float
    offset_s: float
    slowdown: float  # of its iterations, to have the group's period


@dataclass(frozen=True, slots=True)
class Staggered:
    """Offsets of jobs, and the peak of the feed with and without them."""

    starts: tuple[Start, ...]
    peak_w: float  # upper bound for any drift of groups, and slips within the allowance
    together_w: float  # all at their peaks
    mean_w: float  # no offsets come below it
    rise_w: float  # the most in the meter's window, however groups slide, while no job slips
    together_rise_w: float


def stagger(
    jobs: Sequence[TrainingJob], *, slip_s: float, max_slowdown: float = 0.02, steps: int = STEPS, seed: int = 0
) -> Staggered:
    """Return the offsets with the lowest peak: exact for few combinations, else the best of several descents."""
    groups = [_group(members, slip_s, steps, seed) for members in grouped_by_period(jobs, max_slowdown=max_slowdown)]
    return Staggered(
        starts=tuple(start for group in groups for start in group.starts),
        peak_w=sum(group.peak_w for group in groups),
        together_w=sum(job.servers * job.compute_w for job in jobs),
        mean_w=sum(group.mean_w for group in groups),
        rise_w=sum(group.rise_w for group in groups),
        together_rise_w=sum(job.servers * (job.compute_w - job.trough_w) for job in jobs),
    )


def grouped_by_period(jobs: Sequence[TrainingJob], *, max_slowdown: float) -> list[list[TrainingJob]]:
    """Return the fewest groups that share periods with no job slowed beyond the limit, from the longest period on."""
    groups: list[list[TrainingJob]] = []
    for job in sorted(jobs, key=lambda one: -one.iteration_s):
        if groups and groups[-1][0].iteration_s <= job.iteration_s * (1 + max_slowdown) * (1 + 1e-12):
            groups[-1].append(job)
        else:
            groups.append([job])
    return groups


def _group(jobs: Sequence[TrainingJob], slip_s: float, steps: int, seed: int) -> Staggered:
    period_s = jobs[0].iteration_s
    step_s = period_s / steps
    steady = np.array([swing_of(stretched(job, period_s), steps=steps) for job in jobs])
    slipping = np.array([widened(watts, slip_s, step_s=step_s) for watts in steady])
    offsets = best_offsets(slipping, seed=seed)
    starts = (
        Start(job.name, period_s, float(shift * step_s), period_s / job.iteration_s - 1)
        for job, shift in zip(jobs, offsets, strict=True)
    )
    return Staggered(
        starts=tuple(starts),
        peak_w=float(_sum(slipping, offsets).max()),
        together_w=float(steady.max(axis=1).sum()),
        mean_w=float(steady.mean(axis=1).sum()),
        rise_w=largest_rise_w(_sum(steady, offsets), step_s=step_s),
        together_rise_w=largest_rise_w(steady.sum(axis=0), step_s=step_s),
    )


def best_offsets(profiles: Floats, *, seed: int = 0) -> Ints:
    """Return the shift of each profile for the lowest peak of their sum; of equal peaks the flattest."""
    jobs, steps = profiles.shape
    if steps ** (jobs - 1) <= MAX_TRIED:
        rest = product(range(steps), repeat=jobs - 1)
        return min((np.array((0, *one)) for one in rest), key=lambda one: _score(_sum(profiles, one)))
    random = np.random.default_rng(seed)
    begins = [np.zeros(jobs, dtype=np.int64), np.arange(jobs) * steps // jobs]
    begins += [random.integers(steps, size=jobs) for _ in range(RESTARTS)]
    found = min((_descent(profiles, begin) for begin in begins), key=lambda one: _score(_sum(profiles, one)))
    return np.asarray((found - found[0]) % steps)


def wait_s(*, phase_s: float, wanted_s: float, period_s: float) -> float:
    """Return how long a job waits at the end of an iteration to start the next one aligned."""
    return (wanted_s - phase_s) % period_s


def _descent(profiles: Floats, begin: Ints) -> Ints:
    """Coordinate descent: move one job at a time to its best offset, until none moves."""
    offsets = begin.copy()
    turns = np.array([np.roll(profile, shift) for profile in profiles for shift in range(profiles.shape[1])])
    turns = turns.reshape(*profiles.shape, profiles.shape[1])  # [job, shift, step]
    for _ in range(MAX_ROUNDS):
        moved = False
        for job in range(len(profiles)):
            rest = _sum(profiles, offsets) - turns[job, offsets[job]]
            sums = rest + turns[job]
            peaks, squares = sums.max(axis=1), np.square(sums).sum(axis=1)
            best = int(np.lexsort((squares, np.round(peaks, 6)))[0])
            better = (round(peaks[best], 6), squares[best]) < (round(peaks[offsets[job]], 6), squares[offsets[job]])
            if better and best != offsets[job]:
                offsets[job], moved = best, True
        if not moved:
            break
    return offsets


def _score(total: Floats) -> tuple[float, float]:
    return round(float(total.max()), 6), float(np.square(total).sum())


def _sum(profiles: Floats, offsets: Ints) -> Floats:
    return np.asarray(sum(np.roll(profile, shift) for profile, shift in zip(profiles, offsets, strict=True)))


@dataclass(frozen=True, slots=True)
class Cap:
    clock: float
    peak_w: float
    slowdown: float  # of the slowest job's iteration


def clock_within(
    jobs: Sequence[TrainingJob],
    *,
    share_w: float,
    sensitivity: float = 1.0,
    levels: Sequence[float] = (),
    staggered: Staggered | None = None,
) -> Cap:
    """Return the highest clock at which the jobs' peak stays within their share; one of `levels`, if given."""
    lowest_w = _peak_w(jobs, MIN_CLOCK, staggered)
    if lowest_w > share_w:
        message = f"must be at least {lowest_w:g}, the peak at the lowest clock ({MIN_CLOCK}), got {share_w:g}"
        raise RuleError([(("share_w",), message)])
    low, high = MIN_CLOCK, 1.0
    if _peak_w(jobs, high, staggered) <= share_w:
        low = high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _peak_w(jobs, middle, staggered) <= share_w else (low, middle)
    clock = max((level for level in levels if level <= low + 1e-9), default=MIN_CLOCK) if levels else low
    slowdown = max(job.compute_share * sensitivity * (1 / clock - 1) for job in jobs)
    return Cap(clock, _peak_w(jobs, clock, staggered), slowdown)


def _peak_w(jobs: Sequence[TrainingJob], clock: float, staggered: Staggered | None) -> float:
    trough_w = sum(job.servers * job.trough_w for job in jobs)
    left = [float(clock**job.clock_exponent) for job in jobs]
    if staggered is not None:
        return trough_w + (staggered.peak_w - trough_w) * max(left)
    above_w = [job.servers * (job.compute_w - job.trough_w) for job in jobs]
    return trough_w + sum(watts * share for watts, share in zip(above_w, left, strict=True))
