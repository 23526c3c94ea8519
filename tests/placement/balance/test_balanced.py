"""`balanced`: legal everywhere, near the bound, never worse than EPLB."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.eplb import eplb, eplb_global
from bench.expert_loads import named, stand_in, synthetic
from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_slots, copies
from tests.placement.balance.oracle import best_fill

WITHIN = 1.0005  # relative to the optimum or bound: the tolerance at which a layer counts as done, and rounding


@st.composite
def _layouts(draw: st.DrawFn, *, max_gpus: int = 8, max_slots: int = 12) -> Layout:
    slots = st.integers(1, max_slots)
    gpus = draw(st.integers(1, max_gpus))
    counts = [draw(slots)] * gpus if draw(st.booleans()) else [draw(slots) for _ in range(gpus)]
    speeds = [draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(gpus)] if draw(st.booleans()) else None
    return Layout.of(node_of_gpu=[0] * gpus, slots_of_gpu=counts, speeds=speeds)


@st.composite
def _loads(draw: st.DrawFn, *, least: int, most: int, layers: int = 2) -> Floats:
    experts = draw(st.integers(least, most))
    load = st.integers(1, draw(st.sampled_from([1, 3, 1000, 10**9])))
    rows = st.lists(load, min_size=experts, max_size=experts)
    return np.array(draw(st.lists(rows, min_size=layers, max_size=layers)), dtype=np.float64)


@given(data=st.data(), layout=_layouts())
def test_any_layout_gets_a_legal_placement(data: st.DataObject, layout: Layout) -> None:
    most, least = layout.slots, int(layout.slots_of_gpu.max())
    tokens = data.draw(_loads(least=least, most=most))
    placed = balanced(tokens, layout=layout, effort=2**10)
    check_slots(placed, experts=tokens.shape[1], layout=layout)


@given(data=st.data(), layout=_layouts(max_gpus=3, max_slots=3))
def test_small_layers_reach_the_optimum(data: st.DataObject, layout: Layout) -> None:
    most = min(layout.slots, 6)
    assume(int(layout.slots_of_gpu.max()) <= most)
    tokens = data.draw(_loads(least=int(layout.slots_of_gpu.max()), most=most, layers=1))
    found = imbalance(balanced(tokens, layout=layout), tokens, layout=layout).mean
    best = best_fill(tokens[0], layout=layout)
    assert best * (1 - 1e-12) <= found <= best * WITHIN


@st.composite
def _even(draw: st.DrawFn) -> tuple[Layout, Floats]:
    gpus, per_gpu = draw(st.sampled_from([2, 4, 8])), draw(st.integers(1, 5))
    layout = Layout.even(slots=gpus * per_gpu, gpus=gpus, nodes=draw(st.sampled_from([1, 2])))
    groups = draw(st.integers(1, gpus * per_gpu // 4)) * 4 if gpus * per_gpu >= 4 else 0
    assume(per_gpu <= groups)
    rows = st.lists(st.integers(1, 1000), min_size=groups, max_size=groups)
    return layout, np.array([draw(rows)], dtype=np.float64)


@given(even=_even())
def test_the_imbalance_never_exceeds_that_of_a_legal_eplb_placement(even: tuple[Layout, Floats]) -> None:
    """EPLB's two policies have a lower imbalance only where they place an expert twice on one GPU."""
    layout, tokens = even
    ours = imbalance(balanced(tokens, layout=layout), tokens, layout=layout).mean
    for groups, nodes in ((4, layout.nodes), (1, 1)):
        theirs = eplb(tokens, slots=layout.slots, groups=groups, nodes=nodes, gpus=layout.gpus)
        if _is_legal(theirs, experts=tokens.shape[1], layout=layout):
            assert ours <= imbalance(theirs, tokens, layout=layout).mean * WITHIN


def _is_legal(placed: Ints, *, experts: int, layout: Layout) -> bool:
    try:
        check_slots(placed, experts=experts, layout=layout)
    except RuleError:
        return False
    return True


@pytest.mark.parametrize("name", ["decode_in2000out100", "decode_in500out1500", "prefill_in512", "prefill_in4096"])
@pytest.mark.parametrize(("slots", "gpus", "nodes"), [(288, 32, 4), (256, 16, 2), (320, 64, 8), (288, 72, 9)])
def test_deepseek_v3_is_within_a_thousandth_of_the_bound(name: str, slots: int, gpus: int, nodes: int) -> None:
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    for case in (stand_in(name), named(name)):  # the second one is recorded where available
        ours = imbalance(balanced(case.tokens, layout=layout), case.tokens, layout=layout)
        theirs = eplb_global(case.tokens, slots=slots, gpus=gpus)
        assert ours.mean < 1.001 * lower_bound(case.tokens, layout=layout).mean()
        assert ours.mean < imbalance(theirs, case.tokens, layout=layout).mean


OTHER_MODELS = [
    ("qwen3-235b", 128, 8),
    ("qwen3-235b", 144, 16),
    ("qwen3-30b", 160, 32),
    ("olmoe-1b-7b", 64, 8),
    ("deepseek-moe-16b", 72, 8),
    ("mixtral-8x7b", 8, 4),
    ("mixtral-8x7b", 16, 8),
    ("mixtral-8x7b", 16, 4),
]


@pytest.mark.parametrize(("model", "slots", "gpus"), OTHER_MODELS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_other_models_are_never_worse_than_eplb(model: str, slots: int, gpus: int, seed: int) -> None:
    tokens, layout = synthetic(model, seed=seed).tokens, Layout.even(slots=slots, gpus=gpus, nodes=1)
    ours = imbalance(balanced(tokens, layout=layout), tokens, layout=layout).mean
    theirs = imbalance(eplb_global(tokens, slots=slots, gpus=gpus), tokens, layout=layout).mean
    assert ours <= theirs


@pytest.mark.parametrize("name", ["decode_in2000out100", "prefill_in512", "prefill_in4096"])
@pytest.mark.parametrize("speeds", [[0.5, 1.0] * 16, [0.5] * 16 + [1.0] * 16])
def test_gpus_of_different_speed_are_balanced(name: str, speeds: list[float]) -> None:
    """Slow GPUs hold as many copies as fast ones, so they must hold the cold ones."""
    layout = Layout.even(slots=288, gpus=32, nodes=4, speeds=speeds)
    for case in (stand_in(name), named(name)):
        placed = balanced(case.tokens, layout=layout)
        check_slots(placed, experts=256, layout=layout)
        assert imbalance(placed, case.tokens, layout=layout).mean < 1.03


def test_gpus_of_different_memory_are_balanced() -> None:
    tokens = stand_in("decode_in2000out100").tokens[:10]
    layout = Layout.of(node_of_gpu=[0] * 8 + [1] * 24, slots_of_gpu=[3] * 8 + [11] * 24)
    placed = balanced(tokens, layout=layout)
    check_slots(placed, experts=256, layout=layout)
    assert imbalance(placed, tokens, layout=layout).mean < 1.02


def test_with_enough_slots_every_gpu_holds_every_expert() -> None:
    layout = Layout.even(slots=24, gpus=4, nodes=2)
    placed = balanced(np.array([[5.0, 1, 9, 2, 2, 7]]), layout=layout)
    assert copies(placed, experts=6).tolist() == [[4] * 6]


def test_each_layer_is_placed_independently() -> None:
    tokens, layout = synthetic("olmoe-1b-7b").tokens, Layout.even(slots=72, gpus=8, nodes=1)
    whole = balanced(tokens, layout=layout)
    alone = [balanced(tokens[row : row + 1], layout=layout)[0] for row in range(len(tokens))]
    np.testing.assert_array_equal(whole, alone)


@given(power=st.integers(-30, 30))
def test_the_placement_depends_only_on_ratios_of_loads(power: int) -> None:
    tokens, layout = synthetic("mixtral-8x7b").tokens[:4], Layout.even(slots=16, gpus=4, nodes=1)
    scaled = balanced(tokens * 2.0**power, layout=layout, effort=2**12)
    np.testing.assert_array_equal(scaled, balanced(tokens, layout=layout, effort=2**12))


def test_more_effort_never_raises_the_imbalance() -> None:
    tokens, layout = synthetic("mixtral-8x7b").tokens, Layout.even(slots=16, gpus=8, nodes=1)
    reached = [
        imbalance(balanced(tokens, layout=layout, effort=effort), tokens, layout=layout).per_layer
        for effort in (0, 2**12, 2**15)
    ]
    assert all((less >= more - 1e-12).all() for less, more in itertools.pairwise(reached))
    assert reached[-1].mean() < reached[0].mean() - 0.01


@pytest.mark.parametrize(("experts", "slots", "gpus"), [(4096, 8192, 2), (2048, 4096, 64), (600, 4096, 1024)])
def test_the_largest_layers_are_placed(experts: int, slots: int, gpus: int) -> None:
    """Loads of 1 to 3 have many equal placements: the search must still terminate."""
    tokens = np.random.default_rng(5).integers(1, 4, size=(1, experts)).astype(np.float64)
    layout = Layout.even(slots=slots, gpus=gpus, nodes=1)
    placed = balanced(tokens, layout=layout)
    check_slots(placed, experts=experts, layout=layout)
    assert imbalance(placed, tokens, layout=layout).mean < 1.15


def test_too_few_slots_are_refused() -> None:
    with pytest.raises(RuleError, match="at least the number of experts"):
        balanced(np.ones((2, 9)), layout=Layout.even(slots=8, gpus=4, nodes=1))
