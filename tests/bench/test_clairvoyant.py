"""The clairvoyant planner: never below demand, and as cheap as the best of all schedules."""

from functools import cache
from itertools import product
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.clairvoyant import clairvoyant


def cheapest(needed: tuple[int, ...], warmup: int) -> int:
    """The cost in replica windows of the best schedule, by trying every number of starts and stops in every window."""
    most = max(needed)

    @cache
    def cost(window: int, serving: int, warming: tuple[int, ...]) -> float:
        if window == len(needed):
            return 0
        best = float("inf")
        for starts, stops in product(range(most + 1), range(serving + 1)):
            queue = (*warming, starts)
            now, later = serving - stops + queue[0], queue[1:]
            if now >= needed[window] and now <= most:
                best = min(best, now + sum(later) + cost(window + 1, now, later))
        return best

    begun = product(range(most + 1), repeat=1 + warmup)  # serving and warming up before the first window
    return int(min(cost(0, first[0], tuple(first[1:])) for first in begun))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=7).filter(any), st.integers(0, 2))
def test_no_schedule_is_cheaper(needed: list[int], warmup: int) -> None:
    found = clairvoyant([10.0 * count for count in needed], capacity=10.0, warmup=warmup)
    assert found.replica_windows == cheapest(tuple(needed), warmup)


@given(st.lists(st.floats(0, 1e4), max_size=60), st.floats(10, 1e3), st.integers(0, 10))
def test_demand_is_always_served(rates: list[float], capacity: float, warmup: int) -> None:
    found = clairvoyant(rates, capacity=capacity, warmup=warmup)
    assert all(n >= ceil(rate / capacity - 1e-9) for n, rate in zip(found.serving, rates, strict=True))
    assert all(paid >= serving for paid, serving in zip(found.paid, found.serving, strict=True))


def test_a_replica_stays_through_a_gap_as_long_as_its_warm_up() -> None:
    assert clairvoyant([5, 0, 0, 5], capacity=5, warmup=2).serving == (1, 1, 1, 1)
    longer = clairvoyant([5, 0, 0, 0, 5], capacity=5, warmup=2)
    assert longer.serving == (1, 0, 0, 0, 1)
    assert longer.paid == (1, 0, 1, 1, 1)


@pytest.mark.parametrize(("given", "named"), [({"capacity": 0.0}, "capacity"), ({"warmup": -1}, "warmup")])
def test_values_outside_their_range_are_refused(given: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        clairvoyant([1.0], **({"capacity": 1.0, "warmup": 1} | given))  # type: ignore[arg-type]
