"""A verified plan made tight: replicas that its replay does without are let go, the dearest first.

The planner's rates are on the safe side, and headroom is searched on a grid, so a verified plan may hold more than it
needs.  What is left after trimming uses its replicas more than planned; the mix is proven anew at that utilisation, so
that its bound stays one, and where that proof finds something cheaper which also holds, that is the plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.hysteresis import at_counts
from planner.problem import MixProblem
from planner.solve.dispatch import MixSolution, route
from planner.validation.scenarios import ANY_LOAD, Counts

Holds = Callable[[Counts], bool]  # whether every workload's replay holds with these replicas
Solve = Callable[[MixProblem], MixSolution]

PASSES = 3
SLACK = 1e-6  # so that counts are feasible at the utilisation read off them


def trimmed(problem: MixProblem, replicas: Counts, *, holds: Holds) -> Counts:
    """No more of each option than the replay needs beside the others."""
    for _ in range(PASSES):
        before = replicas
        for option in _dearest_first(problem, replicas):
            replicas = _fewest(replicas, option, holds=holds)
        if replicas == before:
            break
    return replicas


def proven_anew(problem: MixProblem, replicas: Counts, *, solve: Solve) -> tuple[MixProblem, MixSolution, MixSolution]:
    """The problem at the utilisation of these counts, its best mix, and these counts as its solution."""
    tight = _at_their_utilisation(problem, replicas)
    best = solve(tight)
    mine = at_counts(tight, best, replicas)
    return tight, best, best if mine is None else mine


def _fewest(replicas: Counts, option: int, *, holds: Holds) -> Counts:
    """By bisection: what holds with fewer replicas holds with more."""
    least, most = -1, replicas[option]  # `most` holds; `least` does not, or is none at all
    while most - least > 1:
        middle = max(0, (least + most) // 2)
        if holds(_with(replicas, option, middle)):
            most = middle
        else:
            least = middle
    return _with(replicas, option, most)


def _dearest_first(problem: MixProblem, replicas: Counts) -> list[int]:
    def usd_per_h(option: int) -> float:
        supply = problem.supplies[problem.options[option].supply]
        return supply.price_usd_per_h * problem.options[option].slots / supply.slots

    return sorted((o for o, count in enumerate(replicas) if count), key=usd_per_h, reverse=True)


def _at_their_utilisation(problem: MixProblem, replicas: Counts) -> MixProblem:
    """The least utilisation per workload at which these counts, evenly used, are a solution; losses included."""
    free = replace(problem, loads=tuple(replace(load, utilisation=ANY_LOAD) for load in problem.loads))
    needed = [0.0] * len(problem.loads)
    for counts in (replicas, *(loss.survivors(replicas) for loss in problem.losses)):
        shares = route(free, replicas=counts)
        busy: dict[tuple[int, int], float] = {}
        for (r, b), share in shares.items():
            way = problem.routes[r]
            for leg in way.legs:
                key = way.load, leg.option
                busy[key] = busy.get(key, 0.0) + share * problem.busy_per_share(way, leg, b)
        for (load, option), replicas_busy in busy.items():
            there = counts[option] * problem.options[option].uptime
            needed[load] = max(needed[load], replicas_busy / there)
    loads = tuple(
        replace(load, utilisation=used * (1 + SLACK) if used > 0 else load.utilisation)
        for load, used in zip(problem.loads, needed, strict=True)
    )
    return replace(problem, loads=loads)


def _with(replicas: Sequence[int], option: int, count: int) -> Counts:
    return (*replicas[:option], count, *replicas[option + 1 :])
