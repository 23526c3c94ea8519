"""The exact placement: against exhaustive search, between solvers and formulations, and at its time limit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.solvers import Deadline, Limits, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.bounds import lower_bound
from placement.exact import Certificate, incumbent, solve_exact
from placement.exact.assignment import AssignmentModel, Case, min_max_load
from placement.exact.pattern_model import list_patterns, lowest_ceiling
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_slots
from tests.placement.exact.oracles import every_placement

LIMITS = Limits(time_limit_s=60.0)
EIGHT = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])
MILLIONTH = 1e-6


@dataclass(frozen=True)
class Solved:
    """A result of `solve_exact`, with means over its layers."""

    expert_of_slot: Ints
    layers: tuple[Certificate, ...]

    @property
    def imbalance(self) -> float:
        return float(np.mean([layer.value for layer in self.layers]))

    @property
    def bound(self) -> float:
        return float(np.mean([layer.bound for layer in self.layers]))

    @property
    def gap(self) -> float:
        return (self.imbalance - self.bound) / self.imbalance

    @property
    def status(self) -> SolveStatus:
        proven = all(layer.status is SolveStatus.OPTIMAL for layer in self.layers)
        return SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE


def solved(tokens: Floats, **how: Any) -> Solved:
    found = solve_exact(tokens, **how)
    return Solved(found.expert_of_slot, found.layers)


def any_placement(tokens: Floats, layout: Layout) -> Ints:
    """The first legal placement."""
    row = next(every_placement(experts=tokens.shape[1], layout=layout))
    return np.repeat(row, len(tokens), axis=0)


def case_of(tokens: Floats, layout: Layout) -> Case:
    return Case(
        loads=tokens[0] / tokens.sum(),
        shares=layout.shares,
        slots_of_gpu=layout.slots_of_gpu,
        max_copies=min(layout.gpus, layout.slots - tokens.shape[1] + 1),
        ceiling=1e3,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Layout]:
    gpus = draw(st.integers(2, 3))
    experts = draw(st.integers(3, 5))
    slots = draw(st.lists(st.integers(1, 3), min_size=gpus, max_size=gpus).filter(lambda s: sum(s) >= experts))
    speeds = draw(st.lists(st.sampled_from([1.0, 1.0, 0.5]), min_size=gpus, max_size=gpus))
    tokens = draw(st.lists(st.integers(1, 100), min_size=experts, max_size=experts))
    layout = Layout.of(node_of_gpu=[0] * gpus, slots_of_gpu=slots, speeds=speeds)
    return np.array([tokens], dtype=np.float64), layout


@given(case=cases(), solver=st.sampled_from(list(Solver)))
def test_the_result_matches_exhaustive_search(case: tuple[Floats, Layout], solver: Solver) -> None:
    tokens, layout = case
    found = solved(tokens, layout=layout, limits=LIMITS, solver=solver, start=any_placement(tokens, layout))
    tried = (
        imbalance(one, tokens, layout=layout).mean for one in every_placement(experts=tokens.shape[1], layout=layout)
    )
    best = min(tried)
    assert found.status is SolveStatus.OPTIMAL
    assert found.imbalance == pytest.approx(best, rel=2 * MILLIONTH)
    assert best * (1 - 2 * MILLIONTH) <= found.bound <= best * (1 + MILLIONTH)
    assert imbalance(found.expert_of_slot, tokens, layout=layout).mean == pytest.approx(found.imbalance)


@given(case=cases())
@settings(max_examples=15)
def test_both_formulations_reach_the_same_optimum(case: tuple[Floats, Layout]) -> None:
    tokens, layout = case
    layer_case = case_of(tokens, layout)
    by_assignment = min_max_load(AssignmentModel.of(layer_case)).program.run(solver=Solver.HIGHS, limits=LIMITS)
    listed = list_patterns(layer_case, ceiling=1e3, deadline=Deadline.of(LIMITS))
    assert listed is not None
    row, bound, status = lowest_ceiling(listed, solver=Solver.HIGHS, deadline=Deadline.of(LIMITS))
    assert status is SolveStatus.OPTIMAL
    assert row is not None
    check_slots(row[None], experts=tokens.shape[1], layout=layout)
    assert bound == pytest.approx(by_assignment.bound, rel=MILLIONTH)
    assert imbalance(row[None], tokens, layout=layout).mean == pytest.approx(bound, rel=MILLIONTH)


@given(case=cases(), ceiling=st.floats(1.0, 2.0))
def test_the_patterns_include_every_placement_under_the_ceiling(case: tuple[Floats, Layout], ceiling: float) -> None:
    tokens, layout = case
    layer_case = case_of(tokens, layout)
    listed = list_patterns(layer_case, ceiling=ceiling, deadline=Deadline.of(LIMITS))
    assert listed is not None
    held = {
        (gpu, tuple(sorted(listed.copies[copy] for copy in copies)))
        for each in listed.classes
        for gpu in each.gpus.tolist()
        for copies in each.copies.tolist()
    }
    for one in every_placement(experts=tokens.shape[1], layout=layout):
        if imbalance(one, tokens, layout=layout).mean <= ceiling:
            counts = np.bincount(one[0])
            for gpu in range(layout.gpus):
                on_gpu = one[0, layout.first_slot[gpu] : layout.first_slot[gpu + 1]].tolist()
                assert (gpu, tuple(sorted((expert, int(counts[expert])) for expert in on_gpu))) in held


@given(
    tokens=st.lists(st.integers(1, 1000), min_size=8, max_size=8),
    size=st.sampled_from([(8, 4), (12, 6), (16, 8)]),
)
@settings(max_examples=8)
def test_result_and_bound_are_at_least_as_good_as_those_of_the_search(tokens: list[int], size: tuple[int, int]) -> None:
    loads, layout = np.array([tokens], dtype=np.float64), Layout.even(slots=size[0], gpus=size[1], nodes=1)
    searched = imbalance(incumbent(loads, layout=layout), loads, layout=layout).mean
    exact = solved(loads, layout=layout, limits=LIMITS)
    assert exact.bound <= exact.imbalance <= searched
    assert lower_bound(loads, layout=layout)[0] <= exact.imbalance * (1 + MILLIONTH)


@pytest.mark.parametrize(("slots", "gpus", "mean", "most"), [(8, 4, 0.0, 0.0), (12, 6, 0.0, 0.0), (16, 8, 0.005, 0.03)])
def test_the_search_comes_close_to_the_exact_result(slots: int, gpus: int, mean: float, most: float) -> None:
    # Not for all loads: of 1, 1, 1, 1, 1, 22, 119 and 192 on 8 GPUs the search makes 1.142, the program 1.082.
    layout, above = Layout.even(slots=slots, gpus=gpus, nodes=1), []
    for seed in range(20):
        loads = np.random.default_rng(seed).integers(1, 1000, size=(1, 8)).astype(np.float64)
        searched = imbalance(incumbent(loads, layout=layout), loads, layout=layout).mean
        above.append(searched / solved(loads, layout=layout, limits=LIMITS).imbalance - 1)
    assert np.mean(above) <= mean + MILLIONTH
    assert max(above) <= most + MILLIONTH


def test_a_gap_within_the_limit_ends_the_search() -> None:
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    start = np.array([[0, 1, 0, 1, 0, 1, 0, 2, 0, 3, 1, 4, 1, 5, 6, 7]])
    near = solved(EIGHT, layout=layout, limits=Limits(time_limit_s=60.0, relative_gap=0.1), start=start)
    assert near.status is SolveStatus.OPTIMAL
    assert near.bound <= 1.0851 <= near.imbalance + 1e-4
    assert near.gap <= 0.1


def test_the_eight_expert_example_reaches_the_published_optimum() -> None:
    best = solved(EIGHT, layout=Layout.even(slots=16, gpus=8, nodes=1), limits=LIMITS)
    assert best.imbalance == pytest.approx(1.0851, abs=5e-5)
    assert best.gap <= 2 * MILLIONTH


def test_each_layer_is_solved_independently() -> None:
    layout = Layout.even(slots=6, gpus=3, nodes=1)
    tokens = np.array([[90.0, 30, 20, 10], [10.0, 20, 30, 90]])
    both = solved(tokens, layout=layout, limits=LIMITS, start=any_placement(tokens, layout))
    alone = [solved(row[None], layout=layout, limits=LIMITS, start=any_placement(row[None], layout)) for row in tokens]
    assert [layer.value for layer in both.layers] == pytest.approx([one.imbalance for one in alone])
    assert both.layers[0].value == pytest.approx(both.layers[1].value)
    assert both.imbalance == pytest.approx(np.mean([layer.value for layer in both.layers]))


@pytest.mark.parametrize("solver", list(Solver))
def test_at_the_time_limit_the_start_and_a_proven_bound_remain(solver: Solver) -> None:
    layout = Layout.even(slots=40, gpus=8, nodes=1)
    tokens = np.array([[1000 / (1 + place) ** 0.6 for place in range(32)]])
    start = np.array([[gpu * 4 + slot if slot < 4 else (gpu * 4 + 8) % 32 for gpu in range(8) for slot in range(5)]])
    check_slots(start, experts=32, layout=layout)
    found = solved(tokens, layout=layout, limits=Limits(time_limit_s=0.6), solver=solver, start=start)
    assert found.status is SolveStatus.FEASIBLE
    assert 1 <= found.bound <= found.imbalance <= imbalance(start, tokens, layout=layout).mean
    assert found.gap > 0


def test_an_interrupted_cbc_preprocessing_proves_no_bound() -> None:
    layout = Layout.even(slots=40, gpus=8, nodes=1)
    tokens = np.array([[1000 / (1 + place) ** 0.6 for place in range(32)]])
    start = np.array([[gpu * 4 + slot if slot < 4 else (gpu * 4 + 8) % 32 for gpu in range(8) for slot in range(5)]])
    found = solved(tokens, layout=layout, limits=Limits(time_limit_s=0.05), solver=Solver.CBC, start=start)
    assert (found.status, found.bound) == (SolveStatus.FEASIBLE, 1.0)


def test_a_balanced_start_is_optimal_without_a_solve() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    tokens = np.array([[3.0, 1.0, 1.0, 3.0]])
    found = solved(tokens, layout=layout, limits=Limits(time_limit_s=1e-3), start=np.array([[0, 1, 2, 3]]))
    assert (found.status, found.imbalance, found.bound) == (SolveStatus.OPTIMAL, 1.0, 1.0)


def test_an_illegal_start_is_refused() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    with pytest.raises(RuleError, match="twice on one GPU"):
        solved(np.array([[3.0, 1.0]]), layout=layout, limits=LIMITS, start=np.array([[0, 0, 1, 1]]))


def test_a_program_too_large_to_build_is_refused() -> None:
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    with pytest.raises(RuleError, match="slots: experts times copies times GPUs must be at most 200,000"):
        solved(np.ones((1, 256)), layout=layout, limits=LIMITS)
