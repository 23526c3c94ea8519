"""The rules that every policy of continuous planning is scored by: warm-up, shortness, cost and history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.continuous_planning import (
    DAY,
    HISTORY,
    REPLICAS,
    SHORT_HISTORY,
    WARM_UP,
    Day,
    day_of,
    ready_replicas,
    scored,
)
from bench.planning_excess import highest_ahead

demands = st.lists(st.floats(0.1, 60), min_size=WARM_UP + 2, max_size=60).map(np.array)


def serving(wanted: list[int]) -> list[int]:
    """Each replica on its own: it starts when it is wanted, and serves after the warm-up while it stays wanted."""
    counts = []
    for t in range(len(wanted)):
        decisions = wanted[: max(1, t)]  # those that count in window t
        ages = []
        for replica in range(1, max(wanted) + 1):
            age = next((n for n, count in enumerate(reversed(decisions)) if count < replica), None)
            ages.append(WARM_UP + 1 if age is None else age)  # wanted from the first on: warm already
        counts.append(sum(age > WARM_UP for age in ages))
    return counts


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_a_replica_serves_after_its_warm_up_while_it_stays_wanted(wanted: list[int]) -> None:
    assert ready_replicas(wanted).tolist() == serving(wanted)


@given(demands)
def test_a_planner_that_knows_the_rates_is_never_short_and_never_cheaper_than_the_clairvoyant(
    rates: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    row = scored(Day("any", rates, history=WARM_UP + 1), highest_ahead(rates))
    assert row["short_windows_percent"] == 0
    assert row["cost_over_clairvoyant_percent"] >= -1e-9


@pytest.mark.parametrize(
    ("windows", "history", "total"), [(2 * DAY + 7, HISTORY, DAY + HISTORY), (58, SHORT_HISTORY, 58)]
)
def test_the_second_day_is_scored_after_its_history(windows: int, history: int, total: int) -> None:
    day = day_of("any", np.arange(1.0, windows + 1))
    assert (day.history, len(day.needed)) == (history, total)
    assert day.needed.mean() == pytest.approx(REPLICAS)
