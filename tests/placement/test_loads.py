"""Loads are validated once: their shape, their numbers, and that every layer and expert has tokens."""

from typing import Any

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.loads import ExpertLoads


def test_a_single_window_may_omit_its_dimension() -> None:
    loads = ExpertLoads.of([[1, 3], [2, 2]])
    assert loads.tokens.shape == (1, 2, 2)
    assert (loads.windows, loads.experts, loads.layers, loads.hidden_layers) == (1, 2, (0, 1), 2)


def test_windows_add_up() -> None:
    loads = ExpertLoads.of([[[1, 0]], [[2, 5]]])
    assert loads.total.tolist() == [[3, 5]]
    assert loads.total.flags.c_contiguous


def test_rows_keep_their_layer_numbers() -> None:
    loads = ExpertLoads.of([[1, 1], [1, 1]], layers=(3, 5), hidden_layers=8)
    assert (loads.layers, loads.hidden_layers) == ((3, 5), 8)
    assert ExpertLoads.of([[1, 1]], layers=(3,)).hidden_layers == 4


def test_experts_without_tokens_get_the_given_minimum() -> None:
    loads = ExpertLoads.of([[[0, 8]], [[0, 8]]], least_tokens=2)
    assert loads.total.tolist() == [[2, 16]]


def test_the_given_array_is_copied() -> None:
    given = np.ones((1, 2))
    loads = ExpertLoads.of(given)
    given[0, 0] = 7
    assert loads.total.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1.0, 2.0], "loads: must have 2 or 3 dimensions"),
        (np.ones((0, 1, 2)), "loads: must hold at least one window"),
        (np.ones((1, 0, 2)), "loads: must hold from 1 to 1000 layers, got 0"),
        (np.ones((1001, 1)), "loads: must hold from 1 to 1000 layers, got 1001"),
        (np.ones((1, 4097)), "loads: must hold from 1 to 4096 experts per layer, got 4097"),
        ([[1.0, float("nan")]], r"loads\[0\]\[1\]: must be a finite number"),
        ([[[1.0, 1.0]], [[1.0, float("inf")]]], r"loads\[1\]\[0\]\[1\]: must be a finite number"),
        ([[1.0, -2.0]], r"loads\[0\]\[1\]: must be above 0, got -2"),
        ([[1.0, 1.0], [0.0, 0.0]], r"loads\[1\]: must be above 0, got a layer without any load; leave dense layers"),
        ([[1.0, 1.0, 0.0]], r"loads\[0\]\[2\]: must be above 0, as for all experts; 1 have no load"),
    ],
)
def test_invalid_loads_are_refused(tokens: Any, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        ExpertLoads.of(tokens)


@pytest.mark.parametrize(
    ("layers", "hidden_layers", "message"),
    [
        ((1,), None, r"layers: must be one number per row \(2\), got 1"),
        ((2, 1), None, "layers: must rise from row to row and start at 0 or above"),
        ((1, 1), None, "layers: must rise from row to row and start at 0 or above"),
        ((-1, 1), None, "layers: must rise from row to row and start at 0 or above"),
        ((3, 5), 5, "hidden_layers: must be from 6 to 1000, got 5"),
        ((3, 5), 1001, "hidden_layers: must be from 6 to 1000, got 1001"),
    ],
)
def test_invalid_row_numbers_are_refused(layers: tuple[int, ...], hidden_layers: int | None, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        ExpertLoads.of(np.ones((2, 3)), layers=layers, hidden_layers=hidden_layers)
