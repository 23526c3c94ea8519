"""Binding requirements and their prices: always the difference of two plans."""

from dataclasses import replace

import pytest
from hypothesis import given

from planner.explain.constraints import Kind, requirements
from planner.explain.prices import Basis, Price, Prices, as_text, prices
from planner.objectives import ENERGY
from planner.problem import Change, Limit, LimitKind, Load, Loss, MixProblem, Supply
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.small_problems import cost, limited_problems, power, solved, three_types, what_if


def priced(problem: MixProblem) -> Prices:
    return prices(what_if(problem), solved(problem))


def only_price(problem: MixProblem, kind: Kind) -> Price:
    (price,) = (price for price in priced(problem).binding if price.kind is kind)
    return price


class TestPrices:
    @given(limited_problems())
    def test_each_price_is_the_saving_of_a_second_solve(self, problem: MixProblem) -> None:
        plan, parts = solved(problem), {part.name: part for part in requirements(problem)}
        for price in priced(problem).binding:
            part = parts[price.name]
            eased = part.dropped(problem) if price.step is None else part.ease(problem, price.step)
            assert price.basis is Basis.PROVEN
            assert price.saves == pytest.approx((plan.cost_usd_per_h or 0) - (cost(eased) or 0), abs=1e-6)
            assert price.saves_without is not None
            assert price.saves_without >= price.saves - 1e-6

    @given(limited_problems())
    def test_unlisted_requirements_do_not_bind(self, problem: MixProblem) -> None:
        plan, found = solved(problem), priced(problem)
        if plan.cost_usd_per_h is None:
            return
        listed = {price.name for price in found.binding}
        assert found.complete
        for part in requirements(problem):
            if part.name not in listed and part.kind is not Kind.DEMAND:
                assert cost(part.dropped(problem)) == pytest.approx(plan.cost_usd_per_h, abs=1e-6)

    def test_prices_are_in_descending_order(self) -> None:
        saves = [price.saves for price in priced(three_types(stock=(None, 2, 1))).binding]
        assert len(saves) > 1
        assert saves == sorted(saves, reverse=True)

    def test_an_unlimited_problem_has_no_prices(self) -> None:
        problem = three_types(stock=(None, None, None))
        assert priced(problem) == Prices(complete=True)

    def test_a_limit_that_does_not_bind_is_not_listed(self) -> None:
        problem = three_types(stock=(None, None, 9), limits=(power(99_000.0),))
        assert priced(problem).binding == ()
        assert list(as_text(priced(problem), problem)) == ["no limit binds: the demand alone sets the price"]


class TestKinds:
    def test_the_price_of_stock_is_the_saving_of_one_more_unit(self) -> None:
        problem = three_types(stock=(None, 3, 1))
        saved = (cost(problem) or 0) - (cost(three_types(stock=(None, 3, 2))) or 0)
        price = only_price(problem, Kind.STOCK)
        assert price.saves == pytest.approx(saved)
        assert f"the stock of H100 (1) binds: 1 more H100 would save {saved:.2f} $/h" in as_text(
            priced(problem), problem
        )

    def test_the_price_of_power_is_per_kilowatt(self) -> None:
        watts = {0: 900.0, 1: 400.0, 2: 700.0}
        problem, free = (
            three_types(limits=(Limit("row-2", LimitKind.POWER, limit_w, replicas=watts),), stock=(None, None, None))
            for limit_w in (2400.0, 3400.0)
        )
        price = only_price(problem, Kind.POWER)
        assert (price.step, price.easing) == (1000.0, "1 kW more for row-2")
        assert price.saves == pytest.approx((cost(problem) or 0) - (cost(free) or 0))
        assert price.saves > 0

    def test_the_price_of_a_quota_is_per_instance_size(self) -> None:
        eights = (Supply("box", 8.0, slots=8), Supply("single", 2.0))
        ways = (RoutedOption("box", "A", 0, 0, (1.0,)), RoutedOption("single", "B", 0, 1, (1.0,)))
        quota = Limit("a", LimitKind.QUOTA, 8.0, units={0: 8.0})
        problem = mix_of((Load("w", (16.0,)),), eights, ways, limits=(quota,))
        price = only_price(problem, Kind.QUOTA)
        assert (price.step, price.saves) == (8.0, 8.0)
        assert price.easing == "8 GPUs more in the quota a"

    def test_the_price_of_the_spot_share_is_per_percent(self) -> None:
        supplies = (Supply("spot", 1.0), Supply("firm", 2.0))
        ways = (RoutedOption("spot", "A", 0, 0, (1.0,)), RoutedOption("firm", "A", 0, 1, (1.0,)))
        for share, saved in ((0.49, 1.0), (0.5, 0.0)):
            limit = Limit("spot", LimitKind.SPOT, 0.0, units={0: 1 - share, 1: -share})
            problem = mix_of((Load("w", (2.0,)),), supplies, ways, limits=(limit,))
            price = only_price(problem, Kind.SPOT)
            assert price.step == 0.01
            assert price.saves == pytest.approx(saved)
            assert price.easing == f"{share * 100 + 1:g} % of all GPUs on the spot market"

    def test_the_price_of_min_replicas_is_per_replica(self) -> None:
        problem = three_types()
        twelve, eleven = (
            replace(problem, loads=(replace(problem.loads[0], min_replicas=count),)) for count in (12, 11)
        )
        price = only_price(twelve, Kind.MIN_REPLICAS)
        assert (price.step, price.easing) == (1.0, "1 replica fewer required of chat")
        assert price.saves == pytest.approx((cost(twelve) or 0) - (cost(eleven) or 0))

    def test_the_price_of_a_limit_on_starts_is_per_replica(self) -> None:
        problem = three_types(stock=(None, None, None))
        running = tuple(replace(option, held=held) for option, held in zip(problem.options, (0, 3, 0), strict=True))
        two, three = (replace(problem, options=running, change=Change(max_started=count)) for count in (2, 3))
        price = only_price(two, Kind.STARTS)
        assert (price.name, price.easing) == ("at most 2 replicas started", "1 replica more started")
        assert price.saves == pytest.approx((cost(two) or 0) - (cost(three) or 0))

    def test_the_price_of_a_node_loss_is_the_saving_without_it(self) -> None:
        problem = three_types(stock=(None, None, None), own_nodes=True)
        nodes = tuple(Loss(f"a node of {option.name}", {o: 1}) for o, option in enumerate(problem.options))
        safe = replace(problem, losses=nodes)
        extra = (cost(safe) or 0) - (cost(problem) or 0)
        price = only_price(safe, Kind.NODE_LOSS)
        assert price.step is None
        assert price.saves == pytest.approx(extra)
        assert f"surviving the loss of any one node costs {extra:.2f} $/h" in as_text(priced(safe), safe)

    def test_headroom_and_error_margins_have_prices(self) -> None:
        problem = three_types(stock=(None, None, None), rate_rps=60.0)
        loads = (replace(problem.loads[0], utilisation=0.7),)
        routes = tuple(
            replace(route, legs=(replace(route.legs[0], worst_rps=tuple(0.8 * r for r in route.legs[0].max_rps)),))
            for route in problem.routes
        )
        margins = {p.kind for p in priced(replace(problem, loads=loads, routes=routes, erring_buckets=2)).binding}
        assert margins == {Kind.HEADROOM, Kind.ERRING}

    def test_savings_are_in_the_unit_of_the_goal(self) -> None:
        problem = three_types(stock=(None, 3, 0), objective=ENERGY)
        options = tuple(
            replace(option, idle_w=watts, busy_w=watts)
            for option, watts in zip(problem.options, (72.0, 400.0, 700.0), strict=True)
        )
        problem = replace(problem, options=options)
        (line, *_) = as_text(priced(problem), problem)
        assert line.endswith(" W")


class TestTimeLimit:
    def test_an_expired_deadline_gives_estimates_from_the_linear_relaxation(self) -> None:
        problem = three_types(stock=(None, 3, 1))
        found = prices(what_if(problem, deadline_s=0.0), solved(problem))
        assert not found.complete
        assert {(price.kind, price.basis) for price in found.binding} == {(Kind.STOCK, Basis.ESTIMATE)}
        assert all(price.saves > 0 for price in found.binding)
        assert all("estimated" in line for line in as_text(found, problem))

    def test_a_shadow_price_matches_the_saving_per_unit_of_stock(self) -> None:
        """With a hundred times the demand, rounding to whole units is negligible."""
        problem = three_types(stock=(None, None, 50), rate_rps=3000.0)
        estimate = prices(what_if(problem, deadline_s=0.0), solved(problem)).binding[0]
        more = three_types(stock=(None, None, 55), rate_rps=3000.0)
        saved = ((cost(problem) or 0) - (cost(more) or 0)) / 5
        assert estimate.saves == pytest.approx(saved, rel=0.05)
