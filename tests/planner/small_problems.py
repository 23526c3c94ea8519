"""Mix problems small enough for an exhaustive search, and their what-if solvers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from fleet.solvers import Limits, Solver
from planner.explain.what_if import WhatIf
from planner.problem import Change, Limit, LimitKind, Load, Loss, MixProblem, Supply
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from tests.planner.mixes import RoutedOption, mix_of, mix_problems

LIMITS = Limits(time_limit_s=60)


def stopped() -> float:
    """A clock at which no limit expires."""
    return 0.0


def what_if(problem: MixProblem, *, clock_s: Callable[[], float] = stopped, deadline_s: float = 60.0) -> WhatIf:
    """A what-if solver of a problem."""
    return WhatIf(problem, Solver.HIGHS, LIMITS, deadline_s, clock_s)


def solved(problem: MixProblem) -> MixSolution:
    """Its best mix."""
    return solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)


def cost(problem: MixProblem) -> float | None:
    """Its lowest cost."""
    return solved(problem).cost_usd_per_h


def three_types(*, rate_rps: float = 30.0, stock: tuple[int | None, ...] = (None, 3, 2), **more: Any) -> MixProblem:
    """Four buckets, three GPU types; the small one cannot serve the longest requests.  `more` goes into the problem."""
    rates_rps = tuple(rate_rps * share for share in (0.4, 0.1, 0.3, 0.2))
    return mix_of(
        loads=(Load("chat", rates_rps),),
        supplies=(
            Supply("L4", 0.75, 1, stock[0]),
            Supply("A100", 2.79, 1, stock[1]),
            Supply("H100", 4.29, 1, stock[2]),
        ),
        ways=(
            RoutedOption("L4", "L4", 0, 0, (2.4, 0.7, 1.1, 0.0)),
            RoutedOption("A100", "A100", 0, 1, (13.0, 4.2, 6.5, 2.6)),
            RoutedOption("H100", "H100", 0, 2, (26.0, 8.0, 14.0, 5.5)),
        ),
        **more,
    )


def power(at_most_w: float) -> Limit:
    """A power domain with all options of `three_types`."""
    return Limit("row-2", LimitKind.POWER, at_most_w, replicas={0: 72.0, 1: 400.0, 2: 700.0})


def budget(at_most_usd_per_h: float) -> Limit:
    """A budget for `three_types`."""
    return Limit("budget", LimitKind.BUDGET, at_most_usd_per_h, units={0: 0.75, 1: 2.79, 2: 4.29})


@st.composite
def limited_problems(draw: st.DrawFn) -> MixProblem:
    """A drawn mix problem with stock and further requirements of every kind."""
    problem = draw(mix_problems(max_units=3))
    supplies, options = range(len(problem.supplies)), range(len(problem.options))
    limits = []
    if draw(st.booleans()):
        limits.append(
            Limit("row", LimitKind.POWER, draw(st.integers(0, 12)) * 100.0, replicas=dict.fromkeys(options, 100.0))
        )
    if draw(st.booleans()):
        prices = {f: problem.supplies[f].price_usd_per_h for f in supplies}
        limits.append(Limit("budget", LimitKind.BUDGET, draw(st.integers(0, 20)) * 1.0, units=prices))
    if draw(st.booleans()):
        gpus = {f: float(problem.supplies[f].slots) for f in supplies}
        limits.append(Limit("all", LimitKind.QUOTA, float(draw(st.integers(0, 8))), units=gpus))
    change = Change(max_started=draw(st.none() | st.integers(0, 4)))
    losses = tuple(Loss(f"node of {o}", {o: 1}) for o in options) if draw(st.integers(0, 3)) == 0 else ()
    return replace(problem, limits=tuple(limits), change=change, losses=losses, own_nodes=bool(losses))
