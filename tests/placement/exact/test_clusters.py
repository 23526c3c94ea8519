"""MoETuner's clustering: against every clustering there is, with copies, and with the memory of all layers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.solvers import Limits, Solver, SolveStatus
from placement.arrays import Floats
from placement.exact import Objective, clusters, objective_of
from placement.exact.clusters import loads_of
from placement.exact.exchange import Held
from tests.placement.exact.oracles import every_clustering

LIMITS = Limits(time_limit_s=60.0)
TWO_LAYERS = np.array([[80.0, 10, 10, 10, 10], [70.0, 20, 20, 10, 5]])


def as_held(cluster_of_expert: np.ndarray[tuple[int], np.dtype[np.int64]], gpus: int) -> Held:
    held: Held = (cluster_of_expert[:, None] == np.arange(gpus))[None]
    return held


def loads(draw: st.DrawFn, layers: int, experts: int) -> Floats:
    row = st.lists(st.integers(1, 100), min_size=experts, max_size=experts)
    return np.array(draw(st.lists(row, min_size=layers, max_size=layers)), dtype=np.float64)


@given(data=st.data(), objective=st.sampled_from(list(Objective)), solver=st.sampled_from(list(Solver)))
@settings(max_examples=25, deadline=None)
def test_it_is_the_best_of_all_clusterings(data: st.DataObject, objective: Objective, solver: Solver) -> None:
    experts, gpus = data.draw(st.integers(3, 6)), data.draw(st.integers(2, 3))
    tokens = data.draw(st.composite(loads)(1, experts))
    found = clusters(tokens, gpus=gpus, objective=objective, limits=LIMITS, solver=solver)
    tried = every_clustering(experts=experts, clusters=gpus)
    best = min(objective_of(as_held(one, gpus), tokens, objective) for one in tried)
    assert found.proof.status is SolveStatus.OPTIMAL
    assert found.proof.value == pytest.approx(best, abs=2e-6)
    assert found.proof.bound <= best + 2e-6
    assert (found.held.sum(axis=2) == 1).all()
    assert (found.sizes >= 1).all()


def test_sizes_are_free_layer_by_layer() -> None:
    """One expert heavier than all others: it lies alone."""
    found = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, limits=LIMITS)
    assert [sorted(sizes) for sizes in found.sizes.tolist()] == [[1, 4], [1, 4]]
    assert loads_of(found.held, TWO_LAYERS).max(axis=1).tolist() == [80.0, 70.0]


def test_memory_over_all_layers_lets_one_layer_make_up_for_another() -> None:
    free = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, limits=LIMITS)
    held = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, limits=LIMITS, copies_of_gpu=[5, 5])
    tight = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, limits=LIMITS, copies_of_gpu=[8, 2])
    assert held.held.sum(axis=(0, 1)).tolist() == [5, 5]
    assert held.proof.value == pytest.approx(free.proof.value)
    assert tight.held.sum(axis=(0, 1)).tolist() == [8, 2]
    assert tight.proof.value == pytest.approx(free.proof.value)


def test_copies_split_what_no_clustering_can() -> None:
    found = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, copies=6, limits=LIMITS)
    alone = clusters(TWO_LAYERS, gpus=2, objective=Objective.PEAK, limits=LIMITS)
    assert (found.held.sum(axis=(1, 2)) <= 6).all()
    assert found.proof.value < alone.proof.value
    assert found.proof.value == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 6}, "gpus: must be from 1 to the number of experts"),
        ({"copies": 4}, "copies: must be from 5"),
        ({"copies_of_gpu": [5]}, "copies_of_gpu: must be one number per GPU"),
        ({"copies_of_gpu": [5, 4]}, "copies_of_gpu: must be at least 2 each"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        clusters(TWO_LAYERS, limits=LIMITS, **{"gpus": 2, **change})  # type: ignore[arg-type]
