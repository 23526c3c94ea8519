"""Branch and price against the undecomposed program and against exhaustive search."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolveStatus
from planner.objectives import ENERGY
from planner.problem import Change, Leg, Limit, LimitKind, Load, Loss, MixProblem, ReplicaOption, Route, Supply
from planner.solve.branch_and_price import decomposes, solve_decomposed
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from tests.planner.mixes import RoutedOption, cheapest_by_trying, mix_of, mix_problems
from tests.planner.solve.branch_and_price.checks import broken_rows

PATIENT = Limits(time_limit_s=60.0)
TENTHS = st.integers(1, 60).map(lambda tenths: tenths / 10)
WATTS = (300.0, 700.0, 1000.0)


def frozen() -> float:
    """A clock at which no limit expires."""
    return 0.0


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that advances with every reading."""
    ticks = count()
    return lambda: next(ticks) * step_s


def decomposed(problem: MixProblem, limits: Limits = PATIENT) -> MixSolution:
    return solve_decomposed(problem, limits=limits, clock_s=frozen).solution


def whole(problem: MixProblem) -> MixSolution:
    return solve_mix(problem, solver=Solver.HIGHS, limits=PATIENT)


@st.composite
def shared_problems(draw: st.DrawFn) -> MixProblem:
    """Two to four workloads on two or three supplies with little stock, often under power, quota and spot limits."""
    buckets = draw(st.integers(1, 3))
    rates = st.lists(st.just(0.0) | TENTHS, min_size=buckets, max_size=buckets).map(tuple)
    supplies = tuple(
        Supply(f"f{f}", draw(TENTHS), slots=draw(st.sampled_from((1, 2, 4))), available=draw(st.integers(0, 9)))
        for f in range(draw(st.integers(2, 3)))
    )
    loads = tuple(
        Load(f"w{w}", draw(rates), draw(st.integers(0, 2)), draw(st.sampled_from((1.0, 0.8))))
        for w in range(draw(st.integers(2, 4)))
    )
    options: list[ReplicaOption] = []
    routes: list[Route] = []
    for w in range(len(loads)):
        for f, supply in enumerate(supplies):
            for slots in {1, supply.slots}:
                routes.append(Route(f"r{w}{f}{slots}", w, (Leg(len(options), draw(rates)),)))
                uptime = draw(st.sampled_from((1.0, 0.9)))
                options.append(ReplicaOption(f"o{w}{f}{slots}", f"gpu{f}", f, slots, uptime, busy_w=WATTS[f] * slots))
    return MixProblem(loads, supplies, tuple(options), tuple(routes), limits=tuple(draw(limits_on(supplies, options))))


@st.composite
def limits_on(draw: st.DrawFn, supplies: tuple[Supply, ...], options: list[ReplicaOption]) -> list[Limit]:
    limits = []
    if draw(st.booleans()):
        watts = {o: option.busy_w for o, option in enumerate(options)}
        limits.append(Limit("power", LimitKind.POWER, draw(st.integers(3, 30)) * 500.0, replicas=watts))
    if draw(st.booleans()):
        gpus = {f: float(supply.slots) for f, supply in enumerate(supplies)}
        limits.append(Limit("quota", LimitKind.QUOTA, float(draw(st.integers(2, 30))), units=gpus))
    if draw(st.booleans()):
        share = draw(st.sampled_from((0.25, 0.5)))
        gpus = {f: supply.slots * ((f == 0) - share) for f, supply in enumerate(supplies)}
        limits.append(Limit("spot", LimitKind.SPOT, 0.0, units=gpus))
    return limits


@given(shared_problems())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_cost_matches_the_undecomposed_program(problem: MixProblem) -> None:
    expected, solution = whole(problem), decomposed(problem)
    assert solution.status is expected.status
    if expected.cost_usd_per_h is not None:
        assert solution.cost_usd_per_h == pytest.approx(expected.cost_usd_per_h, rel=2e-6, abs=1e-6)
        assert solution.bound <= expected.cost_usd_per_h + 1e-6
        assert solution.bound == pytest.approx(expected.cost_usd_per_h, rel=3e-6, abs=1e-6)
        assert broken_rows(problem, solution) == []


@given(mix_problems(max_units=3))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_cost_matches_exhaustive_search(problem: MixProblem) -> None:
    solution, least = decomposed(problem), cheapest_by_trying(problem)
    assert (solution.status is SolveStatus.INFEASIBLE) == (least is None)
    if least is not None:
        assert solution.cost_usd_per_h == pytest.approx(least, rel=2e-6, abs=1e-6)
        assert broken_rows(problem, solution) == []


@given(shared_problems(), st.floats(0.01, 0.3))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_allowed_gap_is_never_exceeded(problem: MixProblem, gap: float) -> None:
    expected, solution = whole(problem), decomposed(problem, Limits(time_limit_s=60.0, relative_gap=gap))
    assert solution.status is expected.status
    if expected.cost_usd_per_h is not None and solution.cost_usd_per_h is not None:
        assert solution.bound <= expected.cost_usd_per_h + 1e-6 <= solution.cost_usd_per_h + 2e-6
        assert solution.cost_usd_per_h - solution.bound <= gap * solution.cost_usd_per_h + 1e-6
        assert broken_rows(problem, solution) == []


@given(shared_problems(), st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_bound_is_valid_at_any_time_limit(problem: MixProblem, readings: int) -> None:
    expected = whole(problem)
    solution = solve_decomposed(problem, limits=Limits(time_limit_s=10.0), clock_s=ticking(10.0 / readings)).solution
    if expected.cost_usd_per_h is None:
        assert not solution.status.has_mix
        return
    assert solution.status is not SolveStatus.INFEASIBLE
    assert solution.bound <= expected.cost_usd_per_h + 1e-6
    if solution.cost_usd_per_h is not None:
        assert solution.cost_usd_per_h >= expected.cost_usd_per_h - 1e-6
        assert broken_rows(problem, solution) == []


@given(shared_problems(), st.integers(0, 2))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_more_stock_never_raises_the_cost(problem: MixProblem, position: int) -> None:
    f = position % len(problem.supplies)
    more = replace(problem.supplies[f], available=(problem.supplies[f].available or 0) + 2)
    richer = replace(problem, supplies=(*problem.supplies[:f], more, *problem.supplies[f + 1 :]))
    before, after = decomposed(problem), decomposed(richer)
    if before.cost_usd_per_h is not None:
        assert after.cost_usd_per_h is not None
        assert after.cost_usd_per_h <= before.cost_usd_per_h * (1 + 2e-6) + 1e-6


@given(shared_problems())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_same_problem_gets_the_same_solution(problem: MixProblem) -> None:
    assert solve_decomposed(problem, limits=PATIENT, clock_s=frozen) == solve_decomposed(
        problem, limits=PATIENT, clock_s=frozen
    )


def two_on_one_node() -> MixProblem:
    """Each workload fills half a node; together they need one node."""
    ways = tuple(RoutedOption(f"w{w}", "H100-SXM", w, 0, (1.0,), 4) for w in range(2))
    return mix_of((Load("a", (1.0,)), Load("b", (1.0,))), (Supply("node", 20.0, slots=8, available=1),), ways)


def test_workloads_share_a_node() -> None:
    solution = decomposed(two_on_one_node())
    assert (solution.status, solution.units, solution.replicas) == (SolveStatus.OPTIMAL, (1,), (1, 1))
    assert solution.bound == pytest.approx(20.0)


def test_missing_stock_is_proven_infeasible() -> None:
    problem = two_on_one_node()
    short = replace(problem, loads=(Load("a", (2.0,)), Load("b", (1.0,))))
    solution = decomposed(short)
    assert (solution.status, solution.bound, solution.shares) == (SolveStatus.INFEASIBLE, float("inf"), {})


def test_a_bucket_that_no_route_serves_is_infeasible() -> None:
    ways = (RoutedOption("a", "L4", 0, 0, (0.0,)), RoutedOption("b", "L4", 1, 0, (1.0,)))
    problem = mix_of((Load("a", (1.0,)), Load("b", (1.0,))), (Supply("s", 1.0),), ways)
    assert decomposed(problem).status is SolveStatus.INFEASIBLE


def test_no_demand_costs_nothing() -> None:
    ways = tuple(RoutedOption(f"w{w}", "L4", w, 0, (1.0,)) for w in range(2))
    solution = decomposed(mix_of((Load("a", (0.0,)), Load("b", (0.0,))), (Supply("s", 1.0),), ways))
    assert (solution.status, solution.cost_usd_per_h, solution.replicas) == (SolveStatus.OPTIMAL, 0.0, (0, 0))


def test_prefill_and_decode_replicas_are_counted_separately() -> None:
    """Two workloads with separate prefill and decode replicas from one stock."""
    options = tuple(ReplicaOption(name, "H100-SXM", 0) for name in ("a/p", "a/d", "b/p", "b/d"))
    routes = tuple(Route(f"r{w}", w, (Leg(2 * w, (2.0,)), Leg(2 * w + 1, (1.0,)))) for w in range(2))
    problem = MixProblem((Load("a", (3.0,)), Load("b", (2.0,))), (Supply("s", 1.0, available=8),), options, routes)
    solution = decomposed(problem)
    assert (solution.replicas, solution.units) == ((2, 3, 1, 2), (8,))
    assert broken_rows(problem, solution) == []


def test_workloads_behind_one_option_form_one_block() -> None:
    """Half a replica each: one suffices only if they share it."""
    options = (ReplicaOption("both", "L4", 0), ReplicaOption("c", "L4", 0))
    routes = (Route("a", 0, (Leg(0, (2.0,)),)), Route("b", 1, (Leg(0, (2.0,)),)), Route("c", 2, (Leg(1, (1.0,)),)))
    loads = (Load("a", (1.0,)), Load("b", (1.0,)), Load("c", (1.0,)))
    problem = MixProblem(loads, (Supply("s", 1.0),), options, routes)
    assert decomposes(problem)
    assert decomposed(problem).replicas == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"objective": ENERGY},
        {"losses": (Loss("node", {0: 1}),)},
        {"own_nodes": True},
        {"erring_buckets": 1},
        {"change": Change(max_started=1)},
        {"change": Change(max_stopped=1)},
        {"limits": (Limit("odd", LimitKind.SPOT, 1.0, replicas={0: -1.0}),)},
    ],
)
def test_problems_with_coupling_rows_are_not_decomposed(change: dict[str, object]) -> None:
    problem = two_on_one_node()
    assert decomposes(problem)
    assert not decomposes(replace(problem, **change))  # type: ignore[arg-type]


def test_a_problem_of_one_block_is_not_decomposed() -> None:
    problem = two_on_one_node()
    assert not decomposes(replace(problem, loads=problem.loads[:1], routes=problem.routes[:1]))


def test_a_whole_mixture_at_high_prices_of_short_stock_is_proven() -> None:
    """Prices of the full units exceed the cost of the mix: an error allowed per block would hide the proof."""
    names = ("small", "first", "second")
    problem = MixProblem(
        loads=(Load("small", (0.0,), 1), Load("first", (0.1,)), Load("second", (0.1,))),
        supplies=(Supply("half", 0.1, slots=2, available=1), Supply("full", 0.1, slots=2, available=2)),
        options=tuple(ReplicaOption(name, "gpu", int(name != "small"), slots=1 + (name != "small")) for name in names),
        routes=tuple(Route(name, o, (Leg(o, (0.0 if name == "small" else 0.1,)),)) for o, name in enumerate(names)),
    )
    solution = decomposed(problem, Limits(time_limit_s=60.0, relative_gap=0.125))
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.cost_usd_per_h == pytest.approx(0.3)
    assert solution.bound >= 0.875 * 0.3
