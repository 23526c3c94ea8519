"""Offers that draw on a stock: filled in by place and pool, kept with the plan, and no GPU drawn on twice."""

from datetime import date, timedelta

import pytest
from pydantic import ValidationError

from fleet.errors import DocumentError
from fleet.offers import Market, Offer
from fleet.stock import StockRef
from planner.stock import as_planned, offers_with_stock, stock_names
from tests.fleet.stock.test_document import NOW, entry, stock


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
