"""The utilisation at which a plan's replay holds: a bisection per workload (docs/explanation/planner/replay.md).

Lower utilisation means more replicas, so whether a workload's replay holds is almost monotone in its own utilisation.
One plan and one replay narrow the interval of every workload at once.  Another mix may do worse with more headroom, and
shared stock couples workloads, so the search concludes nothing without a replay.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Generic, TypeVar

from fleet.documents import RuleError

PlanT = TypeVar("PlanT")

GRID = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
MAX_PLANS = 8

Utilisations = Mapping[str, float]  # workload -> share of a replica's highest rate; may exceed 1


@dataclass(frozen=True, slots=True)
class Trial(Generic[PlanT]):
    """One plan, and the workloads whose replay holds."""

    utilisations: Utilisations
    plan: PlanT | None  # None where no plan exists
    verified: Mapping[str, bool]
    cost_usd_per_h: float

    @property
    def holds(self) -> bool:
        return self.plan is not None and all(self.verified.values())


@dataclass(frozen=True, slots=True)
class Headroom(Generic[PlanT]):
    """The cheapest trial that holds, and all trials."""

    best: Trial[PlanT] | None
    trials: tuple[Trial[PlanT], ...]
    is_cut: bool = False  # the search ended for lack of time


@dataclass(slots=True)
class _Interval:
    """The interval of one workload's edge on the grid, from `low`, presumed to hold, to `high`, known to fail."""

    low: int
    high: int

    def next(self) -> int:
        """The next position to try: the middle, and once nothing lies between, `low`."""
        return self.low if self.high - self.low <= 1 else (self.low + self.high) // 2

    def held(self, position: int) -> None:
        self.low = max(self.low, position)
        self.high = max(self.high, self.low + 1)

    def failed(self, position: int) -> None:
        """The edge is below.  A position that held and now fails beside other workloads moves down by one step."""
        self.high = min(self.high, position)
        self.low = min(self.low, max(0, position - 1))


def find_headroom(
    workloads: Sequence[str],
    *,
    plan_at: Callable[[Utilisations], tuple[PlanT, float] | None],
    verify: Callable[[PlanT], Mapping[str, bool] | None],
    grid: Sequence[float] = GRID,
    start: float = 1.0,
    max_plans: int = MAX_PLANS,
    has_time: Callable[[], bool] = lambda: True,
) -> Headroom[PlanT]:
    """Plan, replay and plan again, with headroom only where it is missing; `start` on the grid comes first.

    `plan_at` returns a plan and its cost, or None without a plan; `verify` returns the workloads that hold in a replay,
    or None when there is no time to replay all of them, which ends the search.
    """
    _refuse(grid, max_plans)
    top = len(grid) - 1
    intervals = {workload: _Interval(low=0, high=top + 1) for workload in workloads}
    positions = dict.fromkeys(workloads, max(0, bisect_right(grid, start) - 1))
    trials: dict[tuple[int, ...], Trial[PlanT]] = {}
    is_cut = False
    while len(trials) < max_plans and tuple(positions.values()) not in trials:
        if trials and not has_time():
            is_cut = True
            break
        utilisations = {name: grid[at] for name, at in positions.items()}
        if (planned := plan_at(utilisations)) is None:
            trial: Trial[PlanT] = Trial(utilisations, None, dict.fromkeys(utilisations, False), inf)
        elif (verified := verify(planned[0])) is None:
            is_cut = True
            break
        else:
            trial = Trial(utilisations, planned[0], verified, planned[1])
        trials[tuple(positions.values())] = trial
        for name, interval in intervals.items():
            if trial.plan is None:  # stock or limits do not allow this much headroom
                interval.held(min(top, positions[name] + 1))
            elif trial.verified[name]:
                interval.held(positions[name])
            else:
                interval.failed(positions[name])
        positions = {name: interval.next() for name, interval in intervals.items()}
    holding = [trial for trial in trials.values() if trial.holds]
    best = min(holding, key=lambda trial: trial.cost_usd_per_h, default=None)
    return Headroom(best=best, trials=tuple(trials.values()), is_cut=is_cut)


def _refuse(grid: Sequence[float], max_plans: int) -> None:
    rising = all(lower < upper for lower, upper in pairwise(grid))
    if not grid or not rising or not 0 < grid[0] <= grid[-1] < inf:
        raise RuleError([(("grid",), "must rise from above 0")])
    if max_plans < 1:
        raise RuleError([(("max_plans",), f"{max_plans} is out of range, expected at least 1")])
