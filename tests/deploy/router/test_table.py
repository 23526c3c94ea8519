"""A routing table is complete or refused, and has a bucket for every size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.router.table import Route, RoutingTable
from fleet.sizes.histogram import SizeBuckets
from tests.deploy.router.tables import INPUTS, OUTPUTS, table


def test_sizes_map_to_buckets() -> None:
    found = table()
    assert [found.row_of(tokens) for tokens in (0, 100, 101, 1000, 10**9)] == [0, 0, 1, 1, 1]
    assert [found.column_of(tokens) for tokens in (1, 50, 51, float("inf"))] == [0, 0, 1, 1]


def test_a_bucket_without_weights_gets_those_of_the_nearest_bucket() -> None:
    buckets = SizeBuckets(input_tokens=INPUTS, output_tokens=OUTPUTS, share=((0.5, 0.0), (0.0, 0.5)))
    weights = {(0, 0): {"a": 1.0, "b": 0.0}, (0, 1): {}, (1, 0): {"b": 0.0}, (1, 1): {"b": 1.0}}
    routes = {name: Route(replicas=1, max_in_flight=8) for name in ("a", "b")}
    found = RoutingTable.of(version="p", buckets=buckets, routes=routes, weights=weights)
    assert found.by_cell == {(0, 0): {"a": 1.0}, (0, 1): {"a": 1.0}, (1, 0): {"b": 1.0}, (1, 1): {"b": 1.0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": [[1.0]]}, "one per edge"),
        ({"cells": [{"row": 0, "column": 0, "weights": {"c": 1.0}}]}, "allowed: names of routes"),
        ({"cells": [{"row": 0, "column": 0, "weights": {"a": 0.5}}]}, "allowed: a sum of 1"),
        ({"cells": [{"row": 9, "column": 0, "weights": {"a": 1.0}}]}, "allowed: rows below 2"),
        ({"cells": [{"row": 0, "column": 0, "weights": {"a": 1.0}}] * 2}, "each bucket once"),
        ({"routes": {}}, "at least 1"),
    ],
)
def test_an_inconsistent_table_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoutingTable.model_validate(table().model_dump(mode="json") | change)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12))
def test_every_size_has_weights_that_sum_to_one(prompt: float, answer: float) -> None:
    found = table()
    weights = found.by_cell[found.row_of(prompt), found.column_of(answer)]
    assert abs(sum(weights.values()) - 1.0) < 1e-9


def test_a_table_survives_a_json_round_trip() -> None:
    assert RoutingTable.model_validate_json(table().model_dump_json()) == table()
