"""Caps for training servers: the highest clock, or the point of the frontier, that fits a row's share of power.

A breaker carries the peak of an iteration, not its mean, so shares are compared with the peak; staggering lowers the
peak of several jobs (docs/explanation/power/training.md, 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.documents import RuleError
from power.training.plans import Plan, planned_at, timeline
from power.training.staggering import Staggered
from power.training.time_energy_frontier import Frontier
from power.workload.workload import TrainingJob

LOWEST_CLOCK = 0.2


@dataclass(frozen=True, slots=True)
class Cap:
    """One clock for all training servers of a row."""

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
    lowest_w = _peak_w(jobs, LOWEST_CLOCK, staggered)
    if lowest_w > share_w:
        message = f"must be at least {lowest_w:g}, the peak at the lowest clock ({LOWEST_CLOCK}), got {share_w:g}"
        raise RuleError([(("share_w",), message)])
    low, high = LOWEST_CLOCK, 1.0
    if _peak_w(jobs, high, staggered) <= share_w:
        low = high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _peak_w(jobs, middle, staggered) <= share_w else (low, middle)
    clock = max((level for level in levels if level <= low + 1e-9), default=LOWEST_CLOCK) if levels else low
    slowdown = max(job.compute_share * sensitivity * (1 / clock - 1) for job in jobs)
    return Cap(clock, _peak_w(jobs, clock, staggered), slowdown)


def plan_within(frontier: Frontier, *, share_w: float) -> Plan:
    """Return the fastest plan of the frontier whose highest power stays within a share; raise RuleError if none
    does."""
    low_s, high_s = frontier.fastest_s, frontier.slowest_s
    best = planned_at(frontier, high_s)
    least_w = _highest_w(frontier, best)
    if least_w > share_w:
        message = f"must be at least {least_w:g}, the peak at the slowest clocks worth having, got {share_w:g}"
        raise RuleError([(("share_w",), message)])
    fastest = planned_at(frontier, low_s)
    if _highest_w(frontier, fastest) <= share_w:
        return fastest
    while high_s - low_s > 1e-6 * high_s:
        middle_s = (low_s + high_s) / 2
        plan = planned_at(frontier, middle_s)
        if _highest_w(frontier, plan) <= share_w:
            best, high_s = plan, middle_s
        else:
            low_s = middle_s
    return best


def _highest_w(frontier: Frontier, plan: Plan) -> float:
    return float(timeline(frontier.iteration, plan.choices)[1].max())


def _peak_w(jobs: Sequence[TrainingJob], clock: float, staggered: Staggered | None) -> float:
    """Return the peak of the jobs, simultaneous or staggered."""
    trough_w = sum(job.servers * job.trough_w for job in jobs)
    left = [float(clock**job.clock_exponent) for job in jobs]
    if staggered is not None:
        return trough_w + (staggered.peak_w - trough_w) * max(left)
    above_w = [job.servers * (job.compute_w - job.trough_w) for job in jobs]
    return trough_w + sum(watts * share for watts, share in zip(above_w, left, strict=True))
