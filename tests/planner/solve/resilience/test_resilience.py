"""Failures to survive: mixes are optimal and survive, and the time limit holds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolverError, SolveStatus
from planner.objectives import COST, COST_AND_SWITCHING, ENERGY, Objective
from planner.problem import Leg, Limit, Load, Loss, MixProblem, ReplicaOption, Route, Supply
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import route, survives
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.small_problems import budget, power, three_types

LIMITS = Limits(time_limit_s=20.0)


def nodes_of(problem: MixProblem) -> tuple[Loss, ...]:
    """The loss of any one node of each option."""
    held = (problem.supplies[option.supply].slots // option.slots for option in problem.options)
    return tuple(
        Loss(f"a node of {option.name}", {o: n})
        for o, (option, n) in enumerate(zip(problem.options, held, strict=True))
    )


@st.composite
def fragile_problems(draw: st.DrawFn) -> MixProblem:
    """A workload on two or three supplies with stock, and failures of nodes, zones, both or none."""
    buckets = draw(st.integers(1, 3))
    rates = draw(st.lists(st.sampled_from((0.0, 0.5, 1.0, 1.7)), min_size=buckets, max_size=buckets))
    supplies = tuple(
        Supply(f"f{f}", draw(st.sampled_from((0.0, 0.7, 1.0, 1.9, 2.3))), draw(st.sampled_from((1, 1, 2))), 3)
        for f in range(draw(st.integers(2, 3)))
    )
    speeds = st.lists(st.sampled_from((0.0, 0.9, 1.5, 2.6, 4.0)), min_size=buckets, max_size=buckets)
    ways = tuple(
        RoutedOption(f"o{f}/{slots}", f"g{f}", 0, f, tuple(draw(speeds)), slots)
        for f, supply in enumerate(supplies)
        for slots in draw(st.sampled_from(((1,), (supply.slots,), tuple(sorted({1, supply.slots})))))
    )
    problem = mix_of((Load("w", tuple(rates), draw(st.integers(0, 2))),), supplies, ways)
    zones = tuple(
        Loss(f"zone {zone}", {o: None for o, option in enumerate(problem.options) if option.supply % 2 == zone})
        for zone in (0, 1)
    )
    kind = draw(st.sampled_from(("nodes", "zones", "both", "nothing")))
    losses = (
        *(nodes_of(problem) if kind in {"nodes", "both"} else ()),
        *(zones if kind in {"zones", "both"} else ()),
    )
    return replace(problem, losses=losses, own_nodes=kind != "zones")


def cheapest_that_survives(problem: MixProblem) -> float | None:
    """By exhaustive search over full nodes per option, or over replicas if nodes are shared."""
    costs = (problem.cost_usd_per_h(units) for units, replicas in _mixes(problem) if _holds(problem, replicas))
    return min(costs, default=None)


def _mixes(problem: MixProblem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    slots = [problem.supplies[option.supply].slots for option in problem.options]
    whole = [n // option.slots for n, option in zip(slots, problem.options, strict=True)]
    step = whole if problem.own_nodes else [1] * len(whole)
    most = [
        n * (problem.supplies[option.supply].available or 0) for n, option in zip(whole, problem.options, strict=True)
    ]
    for replicas in product(*(range(0, top + 1, by) for top, by in zip(most, step, strict=True))):
        taken = [0] * len(problem.supplies)
        for n, option in zip(replicas, problem.options, strict=True):
            taken[option.supply] += n * option.slots
        units = tuple(-(-gpus // supply.slots) for gpus, supply in zip(taken, problem.supplies, strict=True))
        if all(count <= (supply.available or 0) for count, supply in zip(units, problem.supplies, strict=True)):
            yield units, replicas


def _holds(problem: MixProblem, replicas: tuple[int, ...]) -> bool:
    for w, load in enumerate(problem.loads):
        if sum(replicas[o] for o in problem.options_of(w)) < load.min_replicas:
            return False
    return _serves(problem, replicas) and all(survives(problem, loss, replicas=replicas) for loss in problem.losses)


def _serves(problem: MixProblem, replicas: tuple[int, ...]) -> bool:
    try:
        route(problem, replicas=replicas)
    except SolverError:
        return False
    return True


@given(fragile_problems())
def test_the_cost_matches_exhaustive_search(problem: MixProblem) -> None:
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    expected = cheapest_that_survives(problem)
    if expected is None:
        assert solution.status is SolveStatus.INFEASIBLE
        return
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.cost_usd_per_h == pytest.approx(expected, abs=1e-6)
    assert solution.bound == pytest.approx(expected, abs=1e-5)
    assert all(survives(problem, loss, replicas=solution.replicas) for loss in problem.losses)


@settings(max_examples=15)
@given(fragile_problems())
def test_both_solvers_agree(problem: MixProblem) -> None:
    highs, cbc = (solve_mix(problem, solver=solver, limits=LIMITS) for solver in Solver)
    assert highs.status is cbc.status
    assert highs.cost_usd_per_h == pytest.approx(cbc.cost_usd_per_h, abs=1e-6)


@given(fragile_problems(), st.sampled_from((COST, COST_AND_SWITCHING, ENERGY)))
def test_surviving_more_failures_never_lowers_the_cost(problem: MixProblem, goal: Objective) -> None:
    options = tuple(replace(option, idle_w=100.0, busy_w=300.0, held=1) for option in problem.options)
    problem = replace(problem, objective=goal, options=options)
    before: float = 0.0
    for losses in ((), problem.losses[:1], problem.losses):
        solution = solve_mix(replace(problem, losses=losses), solver=Solver.HIGHS, limits=LIMITS)
        value = float("inf") if solution.objective_value is None else solution.objective_value
        assert value >= before * (1 - 1e-6) - 1e-6
        before = value


@settings(max_examples=15)
@given(st.integers(2, 60), st.sampled_from(((), (power(9000.0),), (budget(80.0),))))
def test_limits_hold_together_with_failures(rate_rps: int, limits: tuple[Limit, ...]) -> None:
    problem = three_types(rate_rps=float(rate_rps), stock=(None, 9, 9), limits=limits, own_nodes=True)
    problem = replace(problem, losses=nodes_of(problem))
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    if solution.status.has_mix:
        assert all(survives(problem, loss, replicas=solution.replicas) for loss in problem.losses)
        for limit in limits:
            used = sum(weight * solution.units[f] for f, weight in limit.units.items())
            used += sum(weight * solution.replicas[o] for o, weight in limit.replicas.items())
            assert used <= limit.at_most + 1e-6


def test_remaining_prefill_and_decode_replicas_serve_after_a_node_loss() -> None:
    options = tuple(ReplicaOption(name, name, f) for f, name in enumerate(("prefill", "decode", "both")))
    problem = MixProblem(
        loads=(Load("w", (4.0, 2.0)),),
        supplies=(Supply("p", 1.0), Supply("d", 1.5), Supply("b", 4.0)),
        options=options,
        routes=(
            Route("split", 0, (Leg(0, (3.0, 2.0)), Leg(1, (2.5, 2.0)))),
            Route("both", 0, (Leg(2, (3.0, 2.0)),)),
        ),
        own_nodes=True,
    )
    problem = replace(problem, losses=nodes_of(problem))
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    tried = [
        problem.cost_usd_per_h(counts) for counts in product(range(6), range(6), range(4)) if _holds(problem, counts)
    ]
    assert solution.cost_usd_per_h == pytest.approx(min(tried))


def test_worst_case_rates_hold_before_a_failure() -> None:
    problem = three_types(stock=(None, 9, 9), own_nodes=True)
    routes = tuple(
        replace(way, legs=tuple(replace(leg, worst_rps=tuple(0.5 * r for r in leg.max_rps)) for leg in way.legs))
        for way in problem.routes
    )
    erring = replace(problem, routes=routes, erring_buckets=1, losses=nodes_of(problem))
    solution = solve_mix(erring, solver=Solver.HIGHS, limits=LIMITS)
    calm = solve_mix(replace(erring, losses=()), solver=Solver.HIGHS, limits=LIMITS)
    assert solution.cost_usd_per_h is not None
    assert calm.cost_usd_per_h is not None
    assert solution.cost_usd_per_h >= calm.cost_usd_per_h
    assert all(survives(erring, loss, replicas=solution.replicas) for loss in erring.losses)


def test_a_zone_loss_and_a_node_loss_are_not_simultaneous() -> None:
    problem = mix_of(
        (Load("w", (0.5,)),),
        (Supply("owned", 0.0, available=3), Supply("hired", 0.7, available=3)),
        (RoutedOption("owned", "g0", 0, 0, (0.9,)), RoutedOption("hired", "g1", 0, 1, (0.9,))),
        own_nodes=True,
    )
    problem = replace(problem, losses=(*nodes_of(problem), Loss("zone 0", {0: None}), Loss("zone 1", {1: None})))
    assert solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS).replicas == (1, 1)


def wide(*, rate_rps: float, seed: int = 3) -> MixProblem:
    """Forty options in four zones, sixty buckets, with every node and zone loss to survive."""
    rng = np.random.default_rng(seed)
    size, prices = rng.uniform(1, 20, 60), rng.uniform(0.5, 8, 40)
    problem = mix_of(
        loads=(Load("w", tuple(rng.dirichlet(np.ones(60)) * rate_rps)),),
        supplies=tuple(Supply(f"f{o}", round(float(price), 2)) for o, price in enumerate(prices)),
        ways=tuple(
            RoutedOption(f"o{o}", f"g{o}", 0, o, tuple(price * rng.uniform(3, 12, 60) / size))
            for o, price in enumerate(prices)
        ),
        own_nodes=True,
    )
    zones = tuple(Loss(f"zone {zone}", dict.fromkeys(range(zone, 40, 4))) for zone in range(4))
    return replace(problem, losses=(*nodes_of(problem), *zones))


@pytest.mark.parametrize("limit_s", [0.5, 5.0])
def test_the_time_limit_holds_and_the_returned_mix_survives(limit_s: float) -> None:
    """A busy machine may find no mix within the short limit; the long one suffices on any."""
    problem = wide(rate_rps=300.0)
    started_s = process_time()
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=limit_s))
    assert process_time() - started_s < 1.1 * limit_s + 0.5
    assert solution.status.has_mix or (limit_s < 1 and solution.status is SolveStatus.TIME_LIMIT)
    if solution.cost_usd_per_h is not None:
        assert 0 < solution.bound <= solution.cost_usd_per_h
        assert all(survives(problem, loss, replicas=solution.replicas) for loss in problem.losses)


def test_with_little_time_every_returned_mix_survives() -> None:
    problem = wide(rate_rps=30.0)
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=1e-3))
    assert solution.status is SolveStatus.TIME_LIMIT or all(
        survives(problem, loss, replicas=solution.replicas) for loss in problem.losses
    )


def test_a_bucket_that_only_one_zone_serves_is_infeasible() -> None:
    problem = three_types(stock=(None, None, None))
    problem = replace(problem, losses=(Loss("zone", {1: None, 2: None}),))  # the small one serves no long requests
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    assert solution.status is SolveStatus.INFEASIBLE
