"""Presolve merges and removes options; projections bound the cost of every count."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.problem import MixProblem
from planner.solve.single_workload import Table
from planner.solve.single_workload.bounds import projections
from planner.solve.single_workload.table import presolved
from tests.planner.solve.single_workload.tables import carries, plain_problems
from tests.planner.solve.single_workload.test_search import table_of


def table(units: list[list[float]], prices: list[float], stock: list[float] | None = None) -> Table:
    return Table(
        units=np.array(units),
        price_usd_per_h=np.array(prices),
        stock=np.full(len(prices), np.inf) if stock is None else np.array(stock),
        routes=np.arange(len(prices)),
        buckets=np.arange(len(units[0])),
    )


class TestClasses:
    def test_offers_of_one_table_form_one_class_cheapest_first(self) -> None:
        classes = presolved(table([[1.0, 2.0]] * 3, [3.0, 2.0, 1.0], [np.inf, 4, 2]))
        assert classes.units.shape[0] == 1
        assert classes.offer_option.tolist() == [2, 1, 0]

    def test_an_offer_more_expensive_than_an_unlimited_one_is_dropped(self) -> None:
        classes = presolved(table([[1.0, 2.0]] * 3, [3.0, 2.0, 1.0], [np.inf, np.inf, 2]))
        assert classes.offer_option.tolist() == [2, 1]

    def test_a_dominated_option_is_dropped(self) -> None:
        classes = presolved(table([[1.0, 2.0], [1.0, 3.0], [2.0, 1.0]], [1.0, 1.0, 5.0]))
        assert classes.offer_option.tolist() == [0, 2]

    def test_an_option_with_limited_stock_dominates_no_other(self) -> None:
        assert len(presolved(table([[1.0, 2.0], [1.0, 3.0]], [1.0, 1.0], [5, np.inf])).units) == 2

    def test_proportional_buckets_are_merged(self) -> None:
        classes = presolved(table([[1.0, 2.0, 5.0], [3.0, 6.0, 1.0]], [1.0, 1.0]))
        assert sorted(map(tuple, classes.units.T.tolist())) == [(3.0, 9.0), (5.0, 1.0)]


class TestProjections:
    @given(plain_problems(max_options=3), st.floats(0.2, 1.0))
    def test_no_count_that_carries_the_demand_costs_less_than_its_projection(
        self, problem: MixProblem, valuation: float
    ) -> None:
        whole = table_of(problem)
        assume(len(whole.buckets) > 0)
        classes = presolved(whole)
        assume(len(classes.units) > 0 and bool(np.isfinite(classes.units).any(axis=0).all()))
        unlimited = classes.unlimited_usd_per_h
        prices = np.where(np.isfinite(unlimited), valuation * unlimited, 2 * classes.cheapest_usd_per_h)
        found = projections(classes, prices)
        most = np.minimum(classes.stock, found.most_useful[classes.offer_class])
        assume(float(np.prod(most + 1)) < 60)
        offers = Table(
            classes.units[classes.offer_class],
            classes.price_usd_per_h,
            classes.stock,
            classes.offer_option,
            np.arange(classes.units.shape[1]),
        )
        for counts in product(*(range(int(n) + 1) for n in most)):
            per_class = np.bincount(classes.offer_class, weights=counts, minlength=len(classes.units))
            if np.all(per_class <= found.most_useful) and carries(offers, counts):
                cost = offers.cost_usd_per_h(np.array(counts))
                assert found.bound_usd_per_h <= cost * (1 + 1e-9)
                least, high = found.ranges(cost * (1 + 1e-9))
                assert np.all((least <= per_class) & (per_class <= high))

    def test_the_bound_serves_each_bucket_at_its_lowest_cost(self) -> None:
        classes = presolved(table([[1.0, 5.0], [4.0, 1.0]], [2.0, 3.0]))
        assert projections(classes, classes.unlimited_usd_per_h).bound_usd_per_h == pytest.approx(2.0 + 3.0)
