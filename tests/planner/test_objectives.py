"""Objectives: their names in documents, and the definition of a new one."""

import pickle
from dataclasses import replace

import pytest
from pydantic import ValidationError

from fleet.solvers import Limits, Solver
from planner.objectives import COST, ENERGY, OBJECTIVES, Footprint, Objective
from planner.policy import Policy
from planner.problem import MixProblem
from planner.request import PlanRequest
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from tests.planner.requests import given
from tests.planner.small_problems import three_types


def best(problem: MixProblem) -> MixSolution:
    return solve_mix(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=10))


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=str)
def test_a_document_names_an_objective(objective: Objective) -> None:
    policy = Policy.model_validate({"goal": objective.name})
    assert policy.goal is objective
    assert policy.model_dump()["goal"] == policy.model_dump(mode="json")["goal"] == objective.name
    assert Policy(goal=objective) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301 - a sweep sends requests to its workers


def test_the_names_match_the_schema() -> None:
    names = ["cost", "cost-and-switching", "energy", "carbon", "served"]
    assert list(OBJECTIVES) == names
    for mode in ("validation", "serialization"):
        assert Policy.model_json_schema(mode=mode)["properties"]["goal"]["enum"] == names


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="'cost', 'cost-and-switching', 'energy', 'carbon' or 'served'"):
        Policy.model_validate({"goal": "beauty"})


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES.values() if o.needs is not None], ids=str)
def test_an_objective_without_its_required_footprint_is_refused(objective: Objective) -> None:
    message = f"is required for the goal {objective}: {objective.needs_text}"
    with pytest.raises(ValidationError, match=message):
        PlanRequest.model_validate(given() | {"policy": {"goal": objective.name}})


def test_a_new_objective_is_one_object() -> None:
    """Cost plus a price of energy: at price 0 it equals cost, at a high price it gives the mix of lowest energy."""

    def priced(usd_per_kwh: float) -> Objective:
        def weight(_: Footprint) -> float:
            return usd_per_kwh / 1000

        return replace(COST, name="cost-and-energy", power_weight=weight)

    watts = ((30.0, 72.0), (100.0, 400.0), (120.0, 700.0))
    problem = three_types(stock=(None, None, None))
    options = tuple(
        replace(o, idle_w=idle, busy_w=busy) for o, (idle, busy) in zip(problem.options, watts, strict=True)
    )
    problem = replace(problem, options=options)
    cheapest, thriftiest = (best(replace(problem, objective=objective)) for objective in (COST, ENERGY))
    free, dear = (best(replace(problem, objective=priced(usd_per_kwh))) for usd_per_kwh in (0.0, 1e6))
    assert free.objective_value == pytest.approx(cheapest.objective_value)
    assert (dear.objective_value or 0.0) / 1e3 == pytest.approx(thriftiest.objective_value, rel=1e-2)
    assert dear.cost_usd_per_h is not None
    assert cheapest.cost_usd_per_h is not None
    assert dear.cost_usd_per_h >= cheapest.cost_usd_per_h
