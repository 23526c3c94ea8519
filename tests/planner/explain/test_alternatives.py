"""Single-type plans, compared in the objective's unit."""

from planner.explain.alternatives import as_text, single_gpu_plans
from planner.explain.constraints import Kind
from planner.explain.prices import Basis, Price, Prices
from planner.explain.prices import as_text as prices_in_words
from planner.explain.what_if import negligible
from planner.objectives import SERVED
from planner.problem import MixProblem
from planner.request import PlanRequest
from tests.planner.requests import given
from tests.planner.small_problems import solved, three_types, what_if


def lines(problem: MixProblem) -> list[str]:
    return list(as_text(single_gpu_plans(what_if(problem), PlanRequest.model_validate(given()), solved(problem))))


class TestServed:
    problem = three_types(objective=SERVED, stock=(0, 1, 1))

    def test_a_single_type_plan_reports_how_much_less_it_serves(self) -> None:
        plan, request = solved(self.problem), PlanRequest.model_validate(given())
        whole = plan.objective_value or 0.0
        (alone,) = [one for one in single_gpu_plans(what_if(self.problem), request, plan) if one.gpu == "A100"]
        served = solved(three_types(objective=SERVED, stock=(0, 1, 0))).objective_value or 0.0
        assert alone.reason == f"serves {served:,.4g} rps, {whole - served:,.4g} rps less"
        (line,) = [line for line in lines(self.problem) if line.startswith("only A100")]
        assert line == f"only A100: {alone.reason}, at {alone.cost_usd_per_h:.2f} $/h"

    def test_a_price_without_improvement_reads_serves_nothing_more(self) -> None:
        price = Price(
            kind=Kind.BUDGET,
            name="the budget",
            step=1.0,
            easing="1.00 $/h more",
            saves=0.0,
            saves_without=2.0,
            basis=Basis.PROVEN,
        )
        (line,) = prices_in_words(Prices(binding=(price,)), self.problem)
        assert line == "the budget binds: 1.00 $/h more would serve nothing more, dropping it would serve another 2 rps"


def test_under_the_cost_goal_a_single_type_plan_costs_more() -> None:
    (line,) = [line for line in lines(three_types(stock=(None, None, None))) if line.startswith("only A100")]
    assert line.endswith("more")
    assert "rps" not in line


def test_negligible_compares_with_the_magnitude_of_the_value() -> None:
    assert negligible(5e-3, of=1000.0)
    assert not negligible(5e-4, of=1.0)
    assert negligible(-1e-7, of=0.0)
