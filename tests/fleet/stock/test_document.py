"""The stock document: consistent counts, the instances it holds, its age, and offers that draw on it."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import validation_problems
from fleet.errors import DocumentError
from fleet.offers import Market, Offer
from fleet.stock.document import FreeNodes, Stock, StockEntry, StockRef, Unavailable
from fleet.stock.offers import as_planned, offers_with_stock, stock_names

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


def offer(name: str = "own", *, gpus: int = 8, zone: str | None = None, pool: str | None = None) -> Offer:
    return Offer(
        id=name,
        provider="own",
        region="north",
        zone=zone,
        market=Market.OWNED,
        gpu="H100-SXM",
        gpus_per_instance=gpus,
        price_usd_per_h=8.0,
        stock=StockRef(name="prod", pool=pool),
        as_of=date(2026, 11, 1),
        source="a test",
    )


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
    assert found.age_s(NOW - timedelta(seconds=9)) == 0.0, "an observation of another clock, in the future"


def test_offers_are_filled_from_the_entries_of_their_place_and_pool() -> None:
    held = stock(entry(8, 8, 4), entry(8, zone="b"), entry(8, 8, pool="q"), entry(8, gpu="A100-SXM4-80GB"))
    names = [("all", None, None, 5), ("zone b", "b", None, 1), ("pool q", None, "q", 2), ("elsewhere", "c", None, 0)]
    for name, zone, pool, expected in names:
        (filled,), (use,) = offers_with_stock([offer(zone=zone, pool=pool)], {"prod": held}, now=NOW)
        assert (filled.available, filled.stock) == (expected, None), name
        assert (use.available, use.stale) == ({"own": expected}, False), name


def test_the_use_of_a_stock_states_its_age_and_restores_the_offers() -> None:
    given_offers = (offer(), offer("rented").model_copy(update={"stock": None, "available": 3}))
    filled, (use,) = offers_with_stock(given_offers, {"prod": stock(entry(8))}, now=NOW + timedelta(seconds=900))
    assert use.stale
    assert str(use) == "stock 'prod' was observed 900 s before the plan was solved; allowed: at most 300 s"
    assert as_planned(given_offers, [use]) == filled
    assert filled[1] == given_offers[1]
    assert stock_names(given_offers) == ("prod",)


def test_an_unknown_stock_and_two_offers_for_the_same_gpus_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"offers\[0\].stock.name.*no stock 'prod' here; allowed: other"):
        offers_with_stock([offer()], {"other": stock()}, now=NOW)
    with pytest.raises(DocumentError, match=r"offers\[1\].stock.*draws on the same H100-SXM GPUs.*offer 'own'"):
        offers_with_stock([offer(), offer("halves", gpus=4)], {"prod": stock(entry(8))}, now=NOW)
    narrowed = [offer(zone="a"), offer("b", zone="b")]
    filled, _uses = offers_with_stock(narrowed, {"prod": stock(entry(8), entry(4, zone="b"))}, now=NOW)
    assert [each.available for each in filled] == [1, 0]


def test_an_offer_has_a_stock_or_a_count() -> None:
    with pytest.raises(ValidationError, match="give either this or `stock`"):
        Offer.model_validate(offer().model_dump() | {"available": 1})
    with pytest.raises(ValidationError, match="is required on the owned market"):
        Offer.model_validate(offer().model_dump() | {"stock": None})
