"""The imbalance of a placement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import contiguous


def test_imbalance_is_the_highest_load_over_the_mean() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    tokens = np.array([[1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0]])
    found = imbalance(contiguous(layers=2, experts=4, layout=layout), tokens, layout=layout)
    assert found.per_layer.tolist() == [1.5, 1.0]
    assert (found.mean, found.per_layer.max()) == (1.25, 1.5)


def test_a_fast_gpu_may_carry_more() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1, speeds=[1, 3])
    tokens = np.array([[1.0, 1.0, 3.0, 3.0]])
    rows = contiguous(layers=1, experts=4, layout=layout)
    assert imbalance(rows, tokens, layout=layout).mean == 1.0
    assert imbalance(rows[:, ::-1], tokens, layout=layout).mean == 3.0


def test_imbalance_depends_on_the_dispatch_rule() -> None:
    layout = Layout.even(slots=4, gpus=4, nodes=2)
    tokens = np.array([[6.0, 2.0]])
    rows = np.array([[0, 0, 0, 1]])  # two of three copies on node 0
    assert imbalance(rows, tokens, layout=layout, rule=Dispatch.EQUAL).mean == 1.0
    assert imbalance(rows, tokens, layout=layout, rule=Dispatch.NEAREST).mean == 1.5


@given(st.integers(0, 2**32 - 1), st.sampled_from(Dispatch), st.floats(1e-3, 1e3))
def test_imbalance_is_at_least_1_and_independent_of_units(seed: int, rule: Dispatch, factor: float) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.even(slots=12, gpus=6, nodes=3, speeds=rng.uniform(0.5, 2, 6).tolist())
    tokens = rng.uniform(1, 100, (3, 9))
    rows = contiguous(layers=3, experts=9, layout=layout)
    found = imbalance(rows, tokens, layout=layout, rule=rule)
    assert (found.per_layer >= 1 - 1e-12).all()
    assert found.per_layer == pytest.approx(imbalance(rows, tokens * factor, layout=layout, rule=rule).per_layer)
