"""Conflicts of infeasible problems: their minimality and their relaxations."""

import itertools
from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.solvers import SolveStatus
from planner.explain.constraints import Kind, Requirement, requirements, without
from planner.explain.iis import Conflict, MinimalRelaxation, Proof, as_text, conflicts, smallest_hitting_set
from planner.objectives import SERVED
from planner.problem import Change, Limit, LimitKind, Load, Loss, MixProblem, Supply
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.small_problems import budget, limited_problems, power, solved, three_types, what_if


def holds(problem: MixProblem) -> bool:
    return solved(problem).status.has_mix


def found_in(problem: MixProblem) -> tuple[Conflict, ...]:
    assert solved(problem).status is SolveStatus.INFEASIBLE
    return conflicts(what_if(problem))


def only_conflict(problem: MixProblem) -> Conflict:
    (conflict,) = found_in(problem)
    return conflict


def relaxation_of(conflict: Conflict, kind: Kind) -> MinimalRelaxation:
    return next(relaxation for relaxation in conflict.ways_out if relaxation.kind is kind)


def keeping(problem: MixProblem, kept: Sequence[Requirement]) -> MixProblem:
    return without(problem, [part for part in requirements(problem) if part not in kept])


def parts_named(problem: MixProblem, names: Sequence[str]) -> list[Requirement]:
    """Equal requirements are distinct objects."""
    return [part for part in requirements(problem) if part.name in names]


class TestMinimality:
    @settings(max_examples=10)
    @given(limited_problems())
    def test_the_conflict_is_infeasible_and_each_member_is_needed(self, problem: MixProblem) -> None:
        assume(not holds(problem))
        conflict, names = found_in(problem)[0], [part.name for part in requirements(problem)]
        assert set(conflict.requirements) <= set(names)

        def together(kept: Sequence[str]) -> MixProblem:
            return without(problem, [part for part in requirements(problem) if part.name not in kept])

        assert not holds(together(conflict.requirements))
        for left_out in conflict.requirements:
            assert holds(together([name for name in conflict.requirements if name != left_out]))

    @settings(max_examples=10)
    @given(limited_problems())
    def test_no_smaller_set_is_infeasible(self, problem: MixProblem) -> None:
        assume(not holds(problem))
        conflict, parts = found_in(problem)[0], requirements(problem)
        assert conflict.proof is Proof.SMALLEST
        for kept in itertools.combinations(parts, len(conflict.requirements) - 1):
            names = {part.name for part in kept}
            assert holds(without(problem, [part for part in parts if part.name not in names]))

    @settings(max_examples=10)
    @given(st.lists(st.frozensets(st.integers(0, 6), min_size=1, max_size=4), max_size=8))
    def test_the_hitting_set_is_the_smallest(self, sets: list[frozenset[int]]) -> None:
        def hits(chosen: Sequence[int]) -> bool:
            return all(members.intersection(chosen) for members in sets)

        found = smallest_hitting_set(sets)
        assert hits(sorted(found))
        if found:
            assert not any(map(hits, itertools.combinations(range(7), len(found) - 1)))


class TestRelaxations:
    @settings(max_examples=10)
    @given(limited_problems())
    def test_each_relaxation_suffices_and_a_smaller_one_does_not(self, problem: MixProblem) -> None:
        assume(not holds(problem))
        found = found_in(problem)
        assume(len(found) == 1)
        for out in found[0].ways_out:
            (part,) = (part for part in requirements(problem) if part.name == out.requirement)
            if out.amount is None:
                assert holds(part.dropped(problem))
                continue
            assert out.least
            assert holds(part.ease(problem, out.amount + 1e-5 * (part.grain == 0)))
            less = out.amount - (part.grain or 1e-3)
            assert less < 0 or not holds(part.ease(problem, less))

    def test_the_power_relaxation_is_exact(self) -> None:
        """No mix of three types draws less than 1872 W."""
        out = relaxation_of(only_conflict(three_types(stock=(None, None, None), limits=(power(1500.0),))), Kind.POWER)
        assert out.amount == pytest.approx(372.0, abs=1e-3)
        assert out.easing == "0.372 kW more for row-2"

    def test_the_budget_relaxation_is_exact(self) -> None:
        out = relaxation_of(only_conflict(three_types(limits=(budget(10.0),))), Kind.BUDGET)
        assert out.amount == pytest.approx(2.12)
        assert out.easing == "2.12 $/h more budget"

    def test_the_stock_relaxation_counts_units(self) -> None:
        conflict = only_conflict(three_types(stock=(4, 1, 0)))
        for kind, f in ((Kind.STOCK, 1), (Kind.STOCK, 2)):
            name = three_types().supplies[f].name
            (out,) = (out for out in conflict.ways_out if out.kind is kind and f"of {name} " in out.requirement)
            stock = [4, 1, 0]
            stock[f] += round(out.amount or 0)
            assert holds(three_types(stock=tuple(stock)))
            stock[f] -= 1
            assert not holds(three_types(stock=tuple(stock)))

    def test_demand_is_relaxed_in_steps_of_a_tenth_of_a_percent(self) -> None:
        out = relaxation_of(only_conflict(three_types(stock=(0, 0, 2))), Kind.DEMAND)
        served_most = (
            1 / sum(share / rate for share, rate in zip((0.4, 0.1, 0.3, 0.2), (26, 8, 14, 5.5), strict=True)) * 2
        )
        assert out.amount == pytest.approx(ceil((1 - served_most / 30) * 1000) / 1000)

    def test_a_change_that_does_not_suffice_alone_is_not_listed(self) -> None:
        """Without the large types no option serves the longest requests."""
        conflict = only_conflict(three_types(stock=(2, 0, 0)))
        assert "2 more L4" not in as_text(conflict)
        assert all("L4" not in out.easing for out in conflict.ways_out)


class TestKindsOfConflict:
    def test_demand_and_power_in_conflict(self) -> None:
        problem = three_types(stock=(None, None, None), limits=(power(1500.0),))
        assert as_text(only_conflict(problem)) == (
            "the demand of chat (30 rps) and the power limit of row-2 (1.5 kW) cannot both hold; any one of these "
            f"changes would do: {relaxation_of(only_conflict(problem), Kind.DEMAND).easing} or 0.372 kW more for row-2"
        )

    def test_min_replicas_and_budget_in_conflict(self) -> None:
        loads = (Load("w", (1.0,), min_replicas=5),)
        limit = Limit("budget", LimitKind.BUDGET, 8.0, units={0: 2.0})
        problem = mix_of(loads, (Supply("f", 2.0),), (RoutedOption("o", "A", 0, 0, (9.0,)),), limits=(limit,))
        assert as_text(only_conflict(problem)) == (
            "the budget (8.00 $/h) and at least 5 replicas of w cannot both hold; any one of these changes would do: "
            "2.00 $/h more budget or 1 replica fewer required of w"
        )

    def test_demand_and_a_spot_limit_in_conflict(self) -> None:
        limit = Limit("spot", LimitKind.SPOT, 0.0, units={0: 1.0})
        problem = mix_of(
            (Load("w", (1.0,)),), (Supply("f", 2.0),), (RoutedOption("o", "A", 0, 0, (9.0,)),), limits=(limit,)
        )
        conflict = only_conflict(problem)
        assert conflict.kinds == (Kind.DEMAND, Kind.SPOT)
        assert relaxation_of(conflict, Kind.SPOT).easing == "100 % of all GPUs on the spot market"

    def test_demand_stock_and_a_limit_on_starts_in_conflict(self) -> None:
        problem = three_types(stock=(None, 0, 2), change=Change(max_started=3))
        conflict = only_conflict(problem)
        assert set(conflict.kinds) == {Kind.DEMAND, Kind.STOCK, Kind.STARTS}

    def test_a_zone_loss_that_no_mix_survives_is_in_the_conflict(self) -> None:
        problem = three_types(stock=(0, 3, 3), losses=(Loss("zone b", {2: None}),))
        conflict = only_conflict(problem)
        assert Kind.ZONE_LOSS in conflict.kinds
        assert "not surviving the loss of zone b" in as_text(conflict)

    def test_two_independent_conflicts_are_separate(self) -> None:
        problem = three_types(stock=(None, None, None), limits=(power(1500.0), budget(10.0)))
        first, second = found_in(problem)
        assert {first.kinds, second.kinds} == {(Kind.DEMAND, Kind.POWER), (Kind.DEMAND, Kind.BUDGET)}

    def test_demand_that_may_go_unserved_is_in_no_conflict(self) -> None:
        problem = three_types(stock=(0, 0, 0), objective=SERVED)
        assert solved(problem).status is SolveStatus.OPTIMAL
        assert conflicts(what_if(problem)) == ()


def test_an_expired_deadline_gives_no_conflict() -> None:
    assert conflicts(what_if(three_types(stock=(0, 0, 0)), deadline_s=0.0)) == ()


def test_an_expiring_deadline_gives_a_valid_partial_result() -> None:
    """At any time limit the result is valid: a conflict, and relaxations that suffice."""
    problem = three_types(stock=(None, None, None), limits=(power(1500.0),))
    for readings in range(1, 40, 3):
        ticks = iter([0.0] * readings)
        partial = conflicts(what_if(problem, clock_s=lambda ticks=ticks: next(ticks, 99.0)))  # type: ignore[misc]
        for conflict in partial:
            assert set(conflict.kinds) == {Kind.DEMAND, Kind.POWER}
            for out in conflict.ways_out:
                (part,) = parts_named(problem, [out.requirement])
                assert holds(part.ease(problem, (out.amount or 0.0) + 1e-5))
