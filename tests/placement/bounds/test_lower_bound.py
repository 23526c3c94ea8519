"""The bound holds for every legal placement, and proves known cases infeasible."""

import numpy as np
import pulp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.expert_loads import synthetic
from fleet.documents import RuleError
from fleet.solvers import Limits, Solver, SolveStatus, run
from placement.bounds import lower_bound
from placement.bounds.lower_bound import has_two_slots, quick_bound, two_slot_bound
from placement.dispatch import Dispatch
from placement.layout import Layout
from tests.placement.bounds.every_placement import optimum

ROUNDING = 1e-9
TOY = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[Layout, np.ndarray]:
    """Cases small enough for exhaustive search."""
    experts = draw(st.integers(2, 5))
    gpus = draw(st.integers(2, 3))
    slots = draw(st.lists(st.integers(1, min(3, experts)), min_size=gpus, max_size=gpus))
    speeds = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 2.0]), min_size=gpus, max_size=gpus))
    nodes = [0, *sorted(draw(st.lists(st.integers(0, 1), min_size=gpus - 1, max_size=gpus - 1)))]
    tokens = draw(st.lists(st.integers(1, 60), min_size=experts, max_size=experts))
    while sum(slots) < experts:
        slots[slots.index(min(slots))] += 1
    alike = draw(st.booleans())
    layout = Layout.of(node_of_gpu=nodes, slots_of_gpu=slots, speeds=None if alike else speeds)
    return layout, np.array(tokens, dtype=np.float64)


@given(small_cases(), st.sampled_from(Dispatch))
def test_no_legal_placement_is_below_the_bound(case: tuple[Layout, np.ndarray], rule: Dispatch) -> None:
    layout, tokens = case
    bound = lower_bound(tokens[np.newaxis], layout=layout, rule=rule)[0]
    assert 1.0 <= bound <= optimum(tokens, layout=layout, rule=rule) + ROUNDING


@given(st.lists(st.integers(1, 99), min_size=4, max_size=6), st.integers(0, 2))
def test_the_two_slot_bound_is_valid_with_gpus_of_one_slot(tokens: list[int], singles: int) -> None:
    layout = Layout.of(node_of_gpu=[0] * 4, slots_of_gpu=[1] * singles + [2] * (4 - singles))
    loads = np.array(tokens, dtype=np.float64)
    assert lower_bound(loads[np.newaxis], layout=layout)[0] <= optimum(loads, layout=layout) + ROUNDING


def test_an_expert_that_cannot_be_split_determines_the_bound() -> None:
    """Two GPUs of two slots and four experts allow no second copy: the hot expert shares a GPU with the coldest one."""
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    assert lower_bound(np.array([[7.0, 3, 2, 1]]), layout=layout) == pytest.approx([8 / 6.5], abs=1e-3)


def test_a_slow_gpu_must_hold_a_copy_and_raises_the_bound() -> None:
    """With one slot each, one expert with a third of the load is on the GPU with 1/21 of the speed."""
    layout = Layout.of(node_of_gpu=[0, 0, 0], slots_of_gpu=[1, 1, 1], speeds=[1, 1, 0.1])
    assert lower_bound(np.ones((1, 3)), layout=layout) == pytest.approx([7.0])
    assert optimum(np.ones(3), layout=layout) == pytest.approx(7.0)


def test_even_loads_have_a_bound_of_1() -> None:
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    assert (lower_bound(np.ones((3, 256)) * 7, layout=layout) == 1.0).all()


def test_the_two_slot_bound_is_above_the_hottest_copy_bound() -> None:
    tokens = synthetic("deepseek-v3").tokens[:6]
    layout = Layout.even(slots=288, gpus=144, nodes=18)
    quick = quick_bound(tokens, layout=layout)
    paired = two_slot_bound(tokens, layout=layout, proven=quick)
    assert (paired >= quick).all()
    assert paired.mean() > quick.mean() + 0.01


def test_the_bound_of_the_eight_expert_example_is_close_to_its_optimum() -> None:
    assert 1.05 < lower_bound(TOY, layout=Layout.even(slots=16, gpus=8, nodes=1))[0] <= 1.0851


def test_more_slots_never_raise_the_bound() -> None:
    tokens = synthetic("deepseek-v3").tokens[:4]
    layouts = [Layout.even(slots=slots, gpus=64, nodes=8) for slots in (256, 320, 384)]
    bounds = np.array([lower_bound(tokens, layout=layout) for layout in layouts])
    assert (np.diff(bounds, axis=0) <= ROUNDING).all()


def test_the_bound_does_not_depend_on_the_unit_of_the_loads() -> None:
    tokens = synthetic("deepseek-v3").tokens[:2]
    layout = Layout.even(slots=256, gpus=64, nodes=8)
    np.testing.assert_allclose(lower_bound(tokens, layout=layout), lower_bound(tokens * 1e-6, layout=layout), rtol=1e-5)


@pytest.mark.parametrize(
    ("slots_of_gpu", "speeds", "rule", "pairing"),
    [
        ([2, 2], None, Dispatch.EQUAL, True),
        ([1, 2], None, Dispatch.EQUAL, True),
        ([2, 3], None, Dispatch.EQUAL, False),
        ([2, 2], [1.0, 2.0], Dispatch.EQUAL, False),
        ([2, 2], None, Dispatch.NEAREST, False),
    ],
)
def test_the_two_slot_bound_requires_two_equal_slots_and_equal_dispatch(
    slots_of_gpu: list[int], speeds: list[float] | None, rule: Dispatch, *, pairing: bool
) -> None:
    layout = Layout.of(node_of_gpu=[0, 0], slots_of_gpu=slots_of_gpu, speeds=speeds)
    assert has_two_slots(layout, rule) is pairing


def test_too_few_slots_are_refused() -> None:
    with pytest.raises(RuleError, match="slots"):
        lower_bound(np.ones((1, 8)), layout=Layout.even(slots=4, gpus=4, nodes=1))


def test_the_two_slot_bound_approaches_the_linear_program_from_below() -> None:
    """HiGHS solves the same relaxation as an explicit linear program."""
    tokens = synthetic("deepseek-v3").tokens[0, :40]
    layout = Layout.even(slots=48, gpus=24, nodes=3)
    bound = float(lower_bound(tokens[np.newaxis], layout=layout)[0])
    weights = tokens / tokens.sum() * 24
    assert not _is_in_reach(weights, slots=48, ceiling=bound - 1e-6)
    assert _is_in_reach(weights, slots=48, ceiling=bound + 0.02)


def _is_in_reach(weights: np.ndarray, *, slots: int, ceiling: float) -> bool:
    most = slots - len(weights) + 1
    program = pulp.LpProblem("counts", pulp.LpMinimize)
    taken = {
        (expert, count): program.add_variable(f"y_{expert}_{count}", 0, 1)
        for expert, weight in enumerate(weights)
        for count in range(1, most + 1)
        if weight / count <= ceiling + 1e-12
    }
    program.setObjective(pulp.lpSum(taken.values()))
    for expert in range(len(weights)):
        program += pulp.lpSum(y for (of, _), y in taken.items() if of == expert) == 1
    program += pulp.lpSum(count * y for (_, count), y in taken.items()) == slots
    for row in {weights[expert] / count for expert, count in taken}:
        if row > ceiling / 2:
            heavy = [count * y for (of, count), y in taken.items() if weights[of] / count >= row - 1e-12]
            light = [count * y for (of, count), y in taken.items() if weights[of] / count <= ceiling - row + 1e-12]
            program += pulp.lpSum(heavy) <= pulp.lpSum(light)
    outcome = run(program, solver=Solver.HIGHS, limits=Limits(time_limit_s=20.0))
    return outcome.status is not SolveStatus.INFEASIBLE
