"""The stock document: consistent counts, the instances that it holds, and its age."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import validation_problems
from fleet.stock.document import FreeNodes, Stock, StockEntry, Unavailable

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def entry(
    *free: int, size: int = 8, zone: str | None = "a", pool: str | None = "p", gpu: str = "H100-SXM"
) -> StockEntry:
    """An entry of nodes with so many free GPUs each."""
    counts = {gpus: list(free).count(gpus) for gpus in free if gpus}
    total, available = size * len(free), sum(free)
    return StockEntry(
        gpu=gpu,
        region="north",
        zone=zone,
        pool=pool,
        gpus_per_node=size,
        total=total,
        available=available,
        unavailable={Unavailable.FOREIGN_POD: total - available},
        free=tuple(FreeNodes(gpus=gpus, nodes=nodes) for gpus, nodes in counts.items()),
    )


def stock(*entries: StockEntry, observed_at: datetime = NOW) -> Stock:
    return Stock(observed_at=observed_at, stale_after_s=300.0, source="a test", entries=entries)


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=12),
    gpus=st.integers(1, 24),
)
def test_instances_are_what_first_fit_places(free: list[int], gpus: int) -> None:
    """Brute force: take GPUs of one node for each instance, or whole nodes where no node is large enough."""
    left, placed = list(free), 0
    if gpus <= 8:
        for node in range(len(left)):
            while left[node] >= gpus:
                left[node] -= gpus
                placed += 1
    else:
        whole, needed = [each for each in left if each == 8], 1
        while needed * 8 < gpus:
            needed += 1
        while len(whole) >= needed:
            whole = whole[needed:]
            placed += 1
    assert entry(*free).instances(gpus) == placed


def test_counts_that_do_not_add_up_are_refused() -> None:
    given_entry = entry(8, 4).model_dump()
    with pytest.raises(ValidationError) as refused:
        StockEntry.model_validate(given_entry | {"total": 17, "available": 13})
    problems = [message for _path, message in validation_problems(refused.value)]
    assert problems == ["expected 12: the GPUs of `free`"]
    with pytest.raises(ValidationError, match="expected 16: `available` plus all of `unavailable`"):
        StockEntry.model_validate(given_entry | {"total": 17})
    with pytest.raises(ValidationError, match="same type, place, pool and size as entries"):
        stock(entry(8), entry(4))


def test_a_stock_is_stale_after_its_limit() -> None:
    found = stock(entry(8))
    assert not found.is_stale(NOW + timedelta(seconds=300))
    assert found.is_stale(NOW + timedelta(seconds=301))
    assert not found.is_stale(NOW - timedelta(seconds=300))
    assert found.is_stale(NOW - timedelta(seconds=301)), "its age is unknown"
    assert found.age_s(NOW - timedelta(seconds=9)) == 0.0, "an observation of another clock, in the future"
