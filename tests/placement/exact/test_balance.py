"""The best balance: against every placement there is, between solvers, and with its limits struck."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.solvers import Deadline, Limits, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.bounds import lower_bound
from placement.exact import Objective, heuristic, most_even
from placement.exact.balance_model import BalanceModel, Case
from placement.exact.balance_rows import most_balanced
from placement.exact.gpu_pattern_rows import least_ceiling
from placement.exact.gpu_patterns import fillings
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_slots
from tests.placement.exact.oracles import every_placement

LIMITS = Limits(time_limit_s=60.0)
EIGHT = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])
MILLIONTH = 1e-6


def any_placement(tokens: Floats, layout: Layout) -> Ints:
    """The first there is: no expert twice on a GPU, whatever it weighs."""
    row = next(every_placement(experts=tokens.shape[1], layout=layout))
    return np.repeat(row, len(tokens), axis=0)


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
@settings(max_examples=30, deadline=None)
def test_it_is_the_best_of_all_placements(case: tuple[Floats, Layout], solver: Solver) -> None:
    tokens, layout = case
    found = most_even(tokens, layout=layout, limits=LIMITS, solver=solver, start=any_placement(tokens, layout))
    tried = (
        imbalance(one, tokens, layout=layout).mean for one in every_placement(experts=tokens.shape[1], layout=layout)
    )
    best = min(tried)
    assert found.status is SolveStatus.OPTIMAL
    assert found.imbalance == pytest.approx(best, rel=2 * MILLIONTH)
    assert best * (1 - 2 * MILLIONTH) <= found.bound <= best * (1 + MILLIONTH)
    assert imbalance(found.expert_of_slot, tokens, layout=layout).mean == pytest.approx(found.imbalance)


@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_both_programs_agree(case: tuple[Floats, Layout]) -> None:
    tokens, layout = case
    room = Case(
        parts=tokens / tokens.sum(),
        shares=layout.shares,
        most_copies=min(layout.gpus, layout.slots - tokens.shape[1] + 1),
        slots_of_gpu=layout.slots_of_gpu,
    )
    by_places = most_balanced(BalanceModel.of(room), Objective.PEAK).program.run(solver=Solver.HIGHS, limits=LIMITS)
    listed = fillings(room, ceiling=1e3, deadline=Deadline.of(LIMITS))
    assert listed is not None
    row, bound, status = least_ceiling(listed, solver=Solver.HIGHS, deadline=Deadline.of(LIMITS))
    assert status is SolveStatus.OPTIMAL
    assert row is not None
    check_slots(row[None], experts=tokens.shape[1], layout=layout)
    assert bound == pytest.approx(by_places.bound, rel=MILLIONTH)
    assert imbalance(row[None], tokens, layout=layout).mean == pytest.approx(bound, rel=MILLIONTH)


@given(case=cases(), ceiling=st.floats(1.0, 2.0))
@settings(max_examples=30, deadline=None)
def test_no_filling_of_a_placement_under_the_ceiling_is_missing(case: tuple[Floats, Layout], ceiling: float) -> None:
    tokens, layout = case
    room = Case(
        parts=tokens / tokens.sum(),
        shares=layout.shares,
        most_copies=min(layout.gpus, layout.slots - tokens.shape[1] + 1),
        slots_of_gpu=layout.slots_of_gpu,
    )
    listed = fillings(room, ceiling=ceiling, deadline=Deadline.of(LIMITS))
    assert listed is not None
    held = {
        (gpu, tuple(sorted(listed.copies[copy] for copy in copies)))
        for kind in listed.kinds
        for gpu in kind.gpus.tolist()
        for copies in kind.copies.tolist()
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
@settings(max_examples=8, deadline=None)
def test_the_searches_never_beat_it_and_its_bound_is_no_worse_than_theirs(
    tokens: list[int], size: tuple[int, int]
) -> None:
    loads, layout = np.array([tokens], dtype=np.float64), Layout.even(slots=size[0], gpus=size[1], nodes=1)
    searched = imbalance(heuristic(loads, layout=layout), loads, layout=layout).mean
    exact = most_even(loads, layout=layout, limits=LIMITS)
    assert exact.bound <= exact.imbalance <= searched
    assert lower_bound(loads, layout=layout)[0] <= exact.imbalance * (1 + MILLIONTH)
    assert searched <= 1.01 * exact.imbalance


def test_a_gap_that_is_good_enough_ends_the_search() -> None:
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    start = np.array([[0, 1, 0, 1, 0, 1, 0, 2, 0, 3, 1, 4, 1, 5, 6, 7]])
    near = most_even(EIGHT, layout=layout, limits=Limits(time_limit_s=60.0, relative_gap=0.1), start=start)
    assert near.status is SolveStatus.OPTIMAL
    assert near.bound <= 1.0851 <= near.imbalance + 1e-4
    assert near.gap <= 0.1


def test_the_eight_expert_example_comes_to_the_published_optimum() -> None:
    best = most_even(EIGHT, layout=Layout.even(slots=16, gpus=8, nodes=1), limits=LIMITS)
    assert best.imbalance == pytest.approx(1.0851, abs=5e-5)
    assert best.gap <= 2 * MILLIONTH


def test_each_layer_is_placed_for_its_own_loads() -> None:
    layout = Layout.even(slots=6, gpus=3, nodes=1)
    tokens = np.array([[90.0, 30, 20, 10], [10.0, 20, 30, 90]])
    both = most_even(tokens, layout=layout, limits=LIMITS, start=any_placement(tokens, layout))
    alone = [
        most_even(row[None], layout=layout, limits=LIMITS, start=any_placement(row[None], layout)) for row in tokens
    ]
    assert [layer.value for layer in both.layers] == pytest.approx([one.imbalance for one in alone])
    assert both.layers[0].value == pytest.approx(both.layers[1].value)
    assert both.imbalance == pytest.approx(np.mean([layer.value for layer in both.layers]))


@pytest.mark.parametrize("solver", list(Solver))
def test_a_struck_limit_leaves_the_start_and_a_proven_bound(solver: Solver) -> None:
    layout = Layout.even(slots=40, gpus=8, nodes=1)
    tokens = np.array([[1000 / (1 + place) ** 0.6 for place in range(32)]])
    start = np.array([[gpu * 4 + slot if slot < 4 else (gpu * 4 + 8) % 32 for gpu in range(8) for slot in range(5)]])
    check_slots(start, experts=32, layout=layout)
    found = most_even(tokens, layout=layout, limits=Limits(time_limit_s=0.6), solver=solver, start=start)
    assert found.status is SolveStatus.FEASIBLE
    assert 1 <= found.bound <= found.imbalance <= imbalance(start, tokens, layout=layout).mean
    assert found.gap > 0


def test_cbc_stopped_while_it_prepares_proves_nothing() -> None:
    layout = Layout.even(slots=40, gpus=8, nodes=1)
    tokens = np.array([[1000 / (1 + place) ** 0.6 for place in range(32)]])
    start = np.array([[gpu * 4 + slot if slot < 4 else (gpu * 4 + 8) % 32 for gpu in range(8) for slot in range(5)]])
    found = most_even(tokens, layout=layout, limits=Limits(time_limit_s=0.05), solver=Solver.CBC, start=start)
    assert (found.status, found.bound) == (SolveStatus.FEASIBLE, 1.0)


def test_an_even_start_needs_no_program() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    tokens = np.array([[3.0, 1.0, 1.0, 3.0]])
    found = most_even(tokens, layout=layout, limits=Limits(time_limit_s=1e-3), start=np.array([[0, 1, 2, 3]]))
    assert (found.status, found.imbalance, found.bound) == (SolveStatus.OPTIMAL, 1.0, 1.0)


def test_a_start_that_no_engine_may_load_is_refused() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    with pytest.raises(RuleError, match="twice on one GPU"):
        most_even(np.array([[3.0, 1.0]]), layout=layout, limits=LIMITS, start=np.array([[0, 0, 1, 1]]))


def test_what_could_not_be_built_in_time_is_refused() -> None:
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    with pytest.raises(RuleError, match="slots: experts times copies times GPUs must be at most 200,000"):
        most_even(np.ones((1, 256)), layout=layout, limits=LIMITS)
