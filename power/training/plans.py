"""A point of the frontier as clocks that can be set, chosen by deadline, straggler or power.

The frontier mixes two clocks within a computation.  A plan gives each computation the slowest clock that is no slower,
and spends the remaining time where it saves most.  `bound_j`, the frontier's energy, is a proven lower bound.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats
from power.training.operating_points import Choice, effective_j, efficient_choices
from power.training.schedules import Iteration
from power.training.time_energy_frontier import Frontier

SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    choices: tuple[Choice, ...]
    time_s: float
    energy_j: float
    bound_j: float  # lower bound of the energy within the requested time

    @property
    def mean_w(self) -> float:
        """Return the mean power over an iteration, all stages together."""
        return self.energy_j / self.time_s


def at_full_clock(iteration: Iteration) -> Plan:
    """Return the plan with every computation at full clock, as a baseline."""
    choices = [max(one.choices, key=lambda choice: choice.clock) for one in iteration.computations]
    energy_j = iteration.energy_j(choices)
    return Plan(tuple(choices), iteration.time_s([choice.time_s for choice in choices]), energy_j, energy_j)


def within(frontier: Frontier, deadline_s: float) -> Plan:
    """Return the plan with the least energy within a time; raise RuleError if no plan is fast enough."""
    if deadline_s < frontier.fastest_s * (1 - SAME):
        message = f"must be at least {frontier.fastest_s:g}, the time at the fastest clocks, got {deadline_s:g}"
        raise RuleError([(("deadline_s",), message)])
    return planned_at(frontier, min(deadline_s, frontier.min_energy.time_s))


def beside_straggler(frontier: Frontier, straggler_s: float) -> Plan:
    """Plan a pipeline that waits for a slower one: as slow as the straggler, or as slow as saves energy."""
    return planned_at(frontier, min(max(straggler_s, frontier.fastest_s), frontier.slowest_s))


def planned_at(frontier: Frontier, time_s: float) -> Plan:
    """Return a point of the frontier rounded to clocks that can be set."""
    iteration, point = frontier.iteration, frontier.at(time_s)
    efficient = [efficient_choices(one.choices, blocked_w=iteration.blocked_w) for one in iteration.computations]
    levels = [_slowest(choices, time_s) for choices, time_s in zip(efficient, point.times_s, strict=True)]
    _spend_slack(iteration, efficient, levels, point.time_s)
    choices = [each[level] for each, level in zip(efficient, levels, strict=True)]
    whole_s = iteration.time_s([choice.time_s for choice in choices])
    return Plan(tuple(choices), whole_s, iteration.energy_j(choices), point.energy_j)


def under_mean(frontier: Frontier, limit_w: float) -> Plan:
    """Return the fastest plan whose mean power is within a limit; raise RuleError if there is none."""
    return _fastest(frontier, lambda plan: plan.mean_w, limit_w, field="limit_w", quantity="power")


def plan_within(frontier: Frontier, *, share_w: float) -> Plan:
    """Return the fastest plan whose highest power stays within a share; raise RuleError if there is none."""

    def peak_w(plan: Plan) -> float:
        return float(timeline(frontier.iteration, plan.choices)[1].max())

    return _fastest(frontier, peak_w, share_w, field="share_w", quantity="peak")


def _fastest(frontier: Frontier, watts: Callable[[Plan], float], limit_w: float, *, field: str, quantity: str) -> Plan:
    low_s, high_s = frontier.fastest_s, frontier.slowest_s
    best = planned_at(frontier, high_s)
    if watts(best) > limit_w:
        slowest = f"the {quantity} at the slowest clocks worth having"
        raise RuleError([((field,), f"must be at least {watts(best):g}, {slowest}, got {limit_w:g}")])
    fastest = planned_at(frontier, low_s)
    if watts(fastest) <= limit_w:
        return fastest
    while high_s - low_s > 1e-6 * high_s:
        middle_s = (low_s + high_s) / 2
        plan = planned_at(frontier, middle_s)
        if watts(plan) <= limit_w:
            best, high_s = plan, middle_s
        else:
            low_s = middle_s
    return best


def timeline(iteration: Iteration, choices: Sequence[Choice]) -> tuple[Floats, Floats]:
    """Return the power of all stages together: moments, and watts from each moment to the next."""
    starts = iteration.starts_s([choice.time_s for choice in choices])
    changes: dict[float, float] = {}
    for start_s, choice in zip(starts, choices, strict=True):
        rise_w = choice.energy_j / choice.time_s - iteration.blocked_w
        changes[start_s] = changes.get(start_s, 0.0) + rise_w
        changes[start_s + choice.time_s] = changes.get(start_s + choice.time_s, 0.0) - rise_w
    moments = np.array(sorted(changes))
    watts = iteration.stages * iteration.blocked_w + np.cumsum([changes[moment] for moment in moments])
    return moments, np.asarray(watts[:-1])


def _slowest(choices: Sequence[Choice], time_s: float) -> int:
    return max((at for at, one in enumerate(choices) if one.time_s <= time_s * (1 + SAME)), default=0)


def _spend_slack(
    iteration: Iteration, efficient: Sequence[Sequence[Choice]], levels: list[int], deadline_s: float
) -> None:
    """Slow computations down one by one: the largest saving that still fits first."""
    while True:
        slack = _slack_s(
            iteration, [each[level].time_s for each, level in zip(efficient, levels, strict=True)], deadline_s
        )
        best = max(_slower(iteration.blocked_w, efficient, levels, slack), default=None)
        if best is None:
            return
        levels[best[1]] = best[2]


def _slower(
    blocked_w: float, efficient: Sequence[Sequence[Choice]], levels: Sequence[int], slack: Sequence[float]
) -> Iterator[tuple[float, int, int]]:
    """Iterate over (saved J, computation, its new level) of all single steps that fit."""
    for at, (choices, level, slack_s) in enumerate(zip(efficient, levels, slack, strict=True)):
        now = choices[level]
        for other in range(level + 1, len(choices)):
            if choices[other].time_s - now.time_s > slack_s:
                break
            yield effective_j(now, blocked_w) - effective_j(choices[other], blocked_w), at, other


def _slack_s(iteration: Iteration, times: Sequence[float], deadline_s: float) -> list[float]:
    starts = iteration.starts_s(times)
    ends = [deadline_s] * len(times)
    for at in reversed(iteration.order):
        ends[at] = min((ends[after] - times[after] for after in iteration.after[at]), default=deadline_s)
    return [end - start - time + SAME * deadline_s for end, start, time in zip(ends, starts, times, strict=True)]
