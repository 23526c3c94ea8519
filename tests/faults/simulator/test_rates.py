"""Intervals against textbook values and by counting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.simulator.result import poisson_upper, wilson


def test_wilson_of_no_trials_is_none() -> None:
    assert wilson(0, 0) is None


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],  # the last: Newcombe (1998)
)
def test_wilson_has_the_published_values(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 10_000), st.floats(0.0, 1.0))
def test_the_wilson_interval_contains_the_share_and_is_symmetric(of: int, share: float) -> None:
    hits = round(share * of)
    found, mirrored = wilson(hits, of), wilson(of - hits, of)
    assert found is not None
    assert mirrored is not None
    assert found[0] - 1e-12 <= hits / of <= found[1] + 1e-12
    assert found == pytest.approx((1 - mirrored[1], 1 - mirrored[0]), abs=1e-9)


@pytest.mark.parametrize(("count", "upper"), [(0, 2.9957), (1, 4.7439), (2, 6.2958), (10, 16.9622)])
def test_the_poisson_upper_bound_has_the_published_values(count: int, upper: float) -> None:
    assert poisson_upper(count) == pytest.approx(upper, abs=1e-3)


@given(st.integers(0, 40))
def test_the_count_has_5_percent_probability_at_the_upper_bound(count: int) -> None:
    mean = poisson_upper(count)
    assert sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)) == pytest.approx(
        0.05
    )
