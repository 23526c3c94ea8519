"""`method` of a request: search, exact and auto, against an exhaustive search and each other."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.arrays import Floats
from placement.document import Placement
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.options import Dispatch, Method
from placement.pipeline import CLOSE_TO_BOUND, place
from placement.problem import PlacementProblem
from placement.token_trace import TokenTrace
from tests.placement.exact.oracles import every_placement

EIGHT = [[600.0, 560, 120, 120, 20, 10, 10, 10]]  # the example of vLLM's FlashLB proposal
EIGHT_LAYOUT = Layout.even(slots=12, gpus=4, nodes=2)
SOLVER_TOLERANCE = 2e-6


def solved(loads: Any, layout: Layout, *, method: Method, **others: Any) -> Placement:
    problem = PlacementProblem(loads=ExpertLoads.of(loads), layout=layout, method=method, **others)
    return place(problem, version="1.2.3", clock_s=time.perf_counter)


@st.composite
def small(draw: st.DrawFn) -> tuple[Floats, Layout]:
    gpus = draw(st.integers(2, 3))
    experts = draw(st.integers(3, 5))
    slots = draw(st.lists(st.integers(1, 3), min_size=gpus, max_size=gpus).filter(lambda s: sum(s) >= experts))
    if max(slots) > experts:
        slots = [min(each, experts) for each in slots]
    speeds = draw(st.lists(st.sampled_from([1.0, 1.0, 0.5]), min_size=gpus, max_size=gpus))
    row = st.lists(st.integers(1, 100), min_size=experts, max_size=experts)
    layout = Layout.of(node_of_gpu=[0] * gpus, slots_of_gpu=slots, speeds=speeds)
    return np.array(draw(st.lists(row, min_size=1, max_size=2)), dtype=np.float64), layout


@given(case=small(), rule=st.sampled_from([Dispatch.EQUAL, Dispatch.HASH]))
def test_exact_matches_exhaustive_search(case: tuple[Floats, Layout], rule: Dispatch) -> None:
    tokens, layout = case
    found = solved(tokens, layout, method=Method.EXACT, rule=rule, time_limit_s=60.0)
    for layer, loads in enumerate(tokens):
        rows = every_placement(experts=tokens.shape[1], layout=layout)
        best = min(imbalance(row, loads[None], layout=layout).mean for row in rows)
        assert found.imbalance.per_layer[layer] == pytest.approx(best, rel=SOLVER_TOLERANCE)
        assert found.bound.per_layer[layer] <= best * (1 + SOLVER_TOLERANCE)
    assert found.method is Method.EXACT
    assert found.gap is not None
    assert 0 <= found.gap <= SOLVER_TOLERANCE


@settings(max_examples=10)
@given(st.lists(st.integers(1, 1000), min_size=8, max_size=8), st.sampled_from([(8, 4), (12, 6), (16, 8)]))
def test_exact_and_auto_are_never_worse_than_search(tokens: list[int], size: tuple[int, int]) -> None:
    layout = Layout.even(slots=size[0], gpus=size[1], nodes=1)
    search, exact, auto = (solved([tokens], layout, method=method) for method in Method)
    assert exact.imbalance.mean <= search.imbalance.mean
    assert auto.imbalance.mean <= search.imbalance.mean
    assert search.bound.mean <= auto.bound.mean
    assert search.bound.mean <= exact.bound.mean


def test_a_search_reports_its_method_and_gap() -> None:
    found = solved(EIGHT, EIGHT_LAYOUT, method=Method.SEARCH)
    assert found.method is Method.SEARCH
    assert found.gap == pytest.approx(1 - found.bound.mean / found.imbalance.mean)
    assert (found.provenance.method, found.provenance.time_limit_s) == (Method.SEARCH, None)


def test_auto_runs_the_exact_method_where_the_search_leaves_a_gap() -> None:
    search = solved(EIGHT, EIGHT_LAYOUT, method=Method.SEARCH)
    found = solved(EIGHT, EIGHT_LAYOUT, method=Method.AUTO, time_limit_s=30.0)
    assert search.gap is not None
    assert found.gap is not None
    assert search.gap > CLOSE_TO_BOUND >= SOLVER_TOLERANCE >= found.gap
    assert found.method is Method.EXACT
    assert (found.provenance.method, found.provenance.time_limit_s) == (Method.AUTO, 30.0)


def test_auto_keeps_a_search_result_at_its_bound() -> None:
    even = [[3.0, 1.0, 1.0, 3.0]]
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    found = solved(even, layout, method=Method.AUTO)
    assert (found.method, found.imbalance.mean, found.gap) == (Method.SEARCH, 1.0, 0.0)


def test_layers_without_a_gap_keep_the_search_result() -> None:
    loads = [EIGHT[0], [10.0] * 8]
    search = solved(loads, EIGHT_LAYOUT, method=Method.SEARCH)
    found = solved(loads, EIGHT_LAYOUT, method=Method.AUTO)
    assert found.method is Method.EXACT
    assert found.physical_to_logical_map[1] == search.physical_to_logical_map[1]


def test_at_the_time_limit_the_search_result_remains() -> None:
    loads = [[1000 / (1 + place) ** 0.6 for place in range(32)]]
    layout = Layout.even(slots=40, gpus=8, nodes=1)
    search = solved(loads, layout, method=Method.SEARCH)
    found = solved(loads, layout, method=Method.EXACT, time_limit_s=0.01)
    assert found.imbalance.mean <= search.imbalance.mean
    assert found.bound.mean >= search.bound.mean
    assert found.gap is not None
    assert found.gap > 0


def test_exact_refuses_other_goals_and_auto_uses_the_search() -> None:
    trace = TokenTrace.of([[[0, 1]], [[2, 3]], [[4, 5]]], experts_per_layer=8)
    current = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]])
    goals: list[dict[str, Any]] = [
        {"rule": Dispatch.NEAREST},
        {"trace": trace},
        {"current": current},
        {"groups": 1, "max_imbalance": 1.5},
    ]
    for goal in goals:
        with pytest.raises(RuleError, match="method: exact must"):
            solved(EIGHT, EIGHT_LAYOUT, method=Method.EXACT, **goal)
        found = solved(EIGHT, EIGHT_LAYOUT, method=Method.AUTO, **goal)
        search = solved(EIGHT, EIGHT_LAYOUT, method=Method.SEARCH, **goal)
        assert found.method is Method.SEARCH
        assert found.physical_to_logical_map == search.physical_to_logical_map


def test_exact_refuses_a_model_that_is_too_large_and_auto_uses_the_search() -> None:
    loads = np.random.default_rng(1).uniform(1, 9, (1, 256))
    layout = Layout.even(slots=288, gpus=144, nodes=18)
    with pytest.raises(RuleError, match="method: experts times copies times GPUs must be at most"):
        solved(loads, layout, method=Method.EXACT)
    assert solved(loads, layout, method=Method.AUTO).method is Method.SEARCH


@pytest.mark.parametrize("time_limit_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_limit_that_is_not_positive_is_refused(time_limit_s: float) -> None:
    with pytest.raises(RuleError, match="time_limit_s: must be above 0"):
        solved(EIGHT, EIGHT_LAYOUT, method=Method.AUTO, time_limit_s=time_limit_s)


def test_a_document_without_a_method_is_read_as_a_search() -> None:
    document = solved(EIGHT, EIGHT_LAYOUT, method=Method.SEARCH).model_dump(mode="json")
    for name in ("method", "gap"):
        del document[name]
    found = Placement.model_validate(document)
    assert (found.method, found.gap) == (Method.SEARCH, None)
