"""Ranges of names."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.topology.hostlist import MAX_RANGE, count, expand


def test_a_range_keeps_its_zero_padding() -> None:
    assert expand("n-[08-11].x") == ("n-08.x", "n-09.x", "n-10.x", "n-11.x")
    assert expand("n[9-11]") == ("n9", "n10", "n11")


@given(st.integers(0, 5000), st.integers(1, MAX_RANGE), st.integers(1, 6))
def test_the_count_of_a_range_is_its_number_of_distinct_names(low: int, names: int, width: int) -> None:
    series = f"a[{low:0{width}d}-{low + names - 1}]b"
    assert count(series) == names == len(set(expand(series)))
