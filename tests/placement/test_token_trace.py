"""Token traces: their counts and refused input."""

from typing import Any

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.token_trace import TokenTrace


def test_loads_count_tokens_per_expert() -> None:
    trace = TokenTrace.of([[[0, 2], [1, 2]], [[2, 0], [0, 1]]], experts_per_layer=3)
    assert (trace.tokens, trace.layers, trace.active) == (2, 2, 2)
    assert trace.loads().tolist() == [[2, 0, 2], [1, 2, 1]]
    assert trace.part(1, 2).experts.tolist() == [[[2, 0], [0, 1]]]


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        ([[0, 1]], "3 dimensions"),
        (np.zeros((0, 1, 1)), "at least one token"),
        (np.zeros((1, 1, 4)), "from 1 to 3 experts"),
        ([[[0, 3]]], r"trace\[0\]\[0\]\[1\].*from 0 to 2"),
        ([[[0, -1]]], "from 0 to 2"),
        ([[[0, np.nan]]], "from 0 to 2"),
        ([[[0, 1.5]]], "whole number"),
        ([[[0, 1]], [[2, 2]]], r"trace\[1\]\[0\].*twice"),
        ([[["a", "b"]]], "numbers"),
    ],
)
def test_an_invalid_trace_is_refused(experts: Any, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        TokenTrace.of(experts, experts_per_layer=3)


def test_a_part_out_of_range_is_refused() -> None:
    trace = TokenTrace.of([[[0]]], experts_per_layer=3)
    with pytest.raises(RuleError, match="tokens"):
        trace.part(0, 2)
