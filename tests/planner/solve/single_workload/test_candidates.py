"""Lists of counts are complete, rows cut off only infeasible counts, and the search finds the optimum."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.solvers import Limits, SolveStatus
from planner.problem import MixProblem
from planner.solve import single_workload
from planner.solve.single_workload import candidates, program, search
from planner.solve.single_workload.bounds import projections
from planner.solve.single_workload.candidates import Box, list_candidates
from planner.solve.single_workload.program import FeasibilityTest, Row, row_at
from planner.solve.single_workload.table import Classes, Floats, presolved
from tests.planner.solve.single_workload.tables import carries, plain_problems
from tests.planner.solve.single_workload.test_search import random_problem, table_of

LIMITS = Limits(time_limit_s=20)
WEIGHTS = st.sampled_from((0.0, 0.5, 1.0, 3.0))


def classes_of(problem: MixProblem) -> Classes:
    """The presolved table of a feasible problem."""
    whole = table_of(problem)
    assume(len(whole.buckets) > 0)
    classes = presolved(whole)
    assume(len(classes.units) > 0 and bool(np.isfinite(classes.units).any(axis=0).all()))
    return classes


def unlimited(classes: Classes) -> single_workload.Table:
    """Each class as one option."""
    groups, buckets = classes.units.shape
    every = np.arange(groups)
    return single_workload.Table(classes.units, np.ones(groups), np.full(groups, np.inf), every, np.arange(buckets))


def cost_usd_per_h(classes: Classes, counts: tuple[float, ...]) -> float:
    """Unit by unit, the cheapest offer of each class first."""
    total = 0.0
    for g, count in enumerate(counts):
        left = count
        for offer in np.flatnonzero(classes.offer_class == g):
            taken = min(left, classes.stock[offer])
            total += taken * classes.price_usd_per_h[offer]
            left -= taken
    return total


class TestRows:
    @given(plain_problems(max_options=3), st.lists(st.integers(0, 6), min_size=3, max_size=3))
    def test_units_violate_no_row_exactly_if_they_carry_the_demand(self, problem: MixProblem, units: list[int]) -> None:
        classes = classes_of(problem)
        counts = np.array(units[: len(classes.units)], dtype=float)
        row = FeasibilityTest(classes.units, classes.cheapest_usd_per_h, limits=LIMITS).violated_row(counts)
        assert (row is None) == carries(unlimited(classes), tuple(units[: len(classes.units)]))

    @given(plain_problems(max_options=3), st.lists(st.integers(0, 6), min_size=3, max_size=3), st.data())
    def test_no_row_cuts_off_units_that_carry_the_demand(
        self, problem: MixProblem, units: list[int], data: st.DataObject
    ) -> None:
        classes = classes_of(problem)
        groups = len(classes.units)
        assume(carries(unlimited(classes), tuple(units[:groups])))
        row = row_at(classes.units, np.array(data.draw(st.lists(WEIGHTS, min_size=groups, max_size=groups))))
        assert row.weights @ np.array(units[:groups]) >= row.least


class TestLists:
    @given(plain_problems(max_options=4), st.data())
    def test_every_combination_within_rows_and_budget_is_listed_with_its_cost(
        self, problem: MixProblem, data: st.DataObject
    ) -> None:
        classes = classes_of(problem)
        box, rows, money = self.drawn(classes, data)
        found = list_candidates(box, rows, at_most_usd_per_h=money, max_combinations=10_000)
        ranges = [np.arange(low, high + 1) for low, high in zip(box.least, box.most, strict=True)]
        expected = {
            counts: cost
            for counts in product(*(map(float, values) for values in ranges))
            if (cost := cost_usd_per_h(classes, counts)) <= money
            and all(row.weights @ np.array(counts) >= row.least for row in rows)
        }
        costs = dict(zip(map(tuple, found.counts.tolist()), found.cost_usd_per_h.tolist(), strict=True))
        assert found.is_complete
        assert expected.keys() <= costs.keys()
        assert found.cost_usd_per_h.tolist() == sorted(found.cost_usd_per_h)
        for counts, cost in costs.items():
            assert cost == pytest.approx(cost_usd_per_h(classes, counts))
            assert cost <= money + 1e-6
            assert all(row.weights @ np.array(counts) >= row.least - 1e-6 for row in rows)

    @given(plain_problems(max_options=4), st.data())
    def test_above_the_limit_the_list_is_a_sample(self, problem: MixProblem, data: st.DataObject) -> None:
        classes = classes_of(problem)
        box, rows, money = self.drawn(classes, data)
        whole = list_candidates(box, rows, at_most_usd_per_h=money, max_combinations=10_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(candidates, "SAMPLE", 2)
            part = list_candidates(box, rows, at_most_usd_per_h=money, max_combinations=4)
        assert {tuple(counts) for counts in part.counts.tolist()} <= {tuple(counts) for counts in whole.counts.tolist()}
        assert len(part.counts) == len(whole.counts) or not part.is_complete

    @staticmethod
    def drawn(classes: Classes, data: st.DataObject) -> tuple[Box, list[Row], float]:
        """Ranges within the stock, one or two rows, and a cost limit."""
        groups = len(classes.units)
        stock = np.bincount(classes.offer_class, weights=np.minimum(classes.stock, 9), minlength=groups)
        least = np.minimum(data.draw(st.lists(st.integers(0, 2), min_size=groups, max_size=groups)), stock)
        most = np.minimum(least + data.draw(st.lists(st.integers(0, 4), min_size=groups, max_size=groups)), stock)
        weights = st.lists(WEIGHTS, min_size=groups, max_size=groups)
        rows = [
            Row(np.array(data.draw(weights)), data.draw(st.floats(0, 12))) for _ in range(data.draw(st.integers(1, 2)))
        ]
        floor, ceiling = (cost_usd_per_h(classes, tuple(map(float, counts))) for counts in (least, most))
        return Box(classes, least, most), rows, floor + data.draw(st.floats(0, 1)) * (ceiling - floor)


class TestLevelSearch:
    @pytest.mark.parametrize("max_combinations", [5, 50, 40_000])
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_truncated_lists_do_not_change_the_optimum(
        self, monkeypatch: pytest.MonkeyPatch, max_combinations: int, seed: int
    ) -> None:
        table = table_of(random_problem(seed=seed, options=6, buckets=10, rate_rps=60))
        monkeypatch.setattr(search, "MAX_LISTS", 0)
        by_branching = single_workload.cheapest(table, limits=LIMITS)
        monkeypatch.undo()
        monkeypatch.setattr(search, "MAX_CANDIDATES", max_combinations)
        monkeypatch.setattr(candidates, "SAMPLE", 4)
        by_lists = single_workload.cheapest(table, limits=LIMITS)
        assert by_lists.outcome.status is by_branching.outcome.status is SolveStatus.OPTIMAL
        assert table.cost_usd_per_h(by_lists.units) == pytest.approx(table.cost_usd_per_h(by_branching.units))
        assert by_lists.outcome.bound == pytest.approx(by_branching.outcome.bound, abs=1e-5)

    @pytest.mark.parametrize("rate_rps", [10.0, 100.0, 1000.0])
    def test_few_classes_need_no_branching(self, monkeypatch: pytest.MonkeyPatch, rate_rps: float) -> None:
        def branched(*_: object, **__: object) -> None:
            pytest.fail("HiGHS was called to branch")

        monkeypatch.setattr(program, "cheapest", branched)
        table = table_of(random_problem(seed=7, options=5, buckets=30, rate_rps=rate_rps))
        assert single_workload.cheapest(table, limits=LIMITS).outcome.status is SolveStatus.OPTIMAL

    def test_an_undecided_search_returns_a_valid_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = table_of(random_problem(seed=4, options=10, buckets=20, rate_rps=300))
        optimum = table.cost_usd_per_h(single_workload.cheapest(table, limits=LIMITS).units)
        monkeypatch.setattr(search, "MAX_CANDIDATES", 20)
        monkeypatch.setattr(candidates, "SAMPLE", 4)
        classes = presolved(table)
        prices: Floats = classes.unlimited_usd_per_h
        found = projections(classes, prices)
        sieve = search.LevelSearch(classes, found, prices, limits=LIMITS)
        start = found.bound_usd_per_h * (1 - 1e-9)
        run = sieve.run(bound_usd_per_h=start, target_usd_per_h=2 * optimum, below=lambda cost: cost - 0.01)
        assert start <= run.bound_usd_per_h <= optimum + 1e-6
