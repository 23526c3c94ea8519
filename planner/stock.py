"""Offers that refer to a stock: their instances are filled in when a plan is solved, and kept in the plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from pydantic import AwareDatetime, Field

from fleet.documents import Frozen
from fleet.errors import DocumentError, Problem
from fleet.offers import Offer
from fleet.stock.document import Stock, StockEntry


class StockUse(Frozen):
    """A stock as a plan read it, with the instances of each offer.  With this, the plan can be computed again."""

    name: str
    source: str
    observed_at: AwareDatetime
    age_s: float = Field(ge=0, description="When the plan was solved.")
    stale_after_s: float = Field(gt=0)
    stale: bool = Field(description="The observation was older than `stale_after_s`: the plan is not applied.")
    available: Mapping[str, int] = Field(description="Id of an offer -> its instances.")

    def __str__(self) -> str:
        return (
            f"stock {self.name!r} was observed {self.age_s:,.0f} s before the plan was solved; "
            f"allowed: at most {self.stale_after_s:,.0f} s"
        )


def stock_names(offers: Iterable[Offer]) -> tuple[str, ...]:
    """The stocks that these offers refer to."""
    return tuple(sorted({offer.stock.name for offer in offers if offer.stock is not None}))


def offers_with_stock(
    offers: Sequence[Offer], stocks: Mapping[str, Stock], *, now: datetime
) -> tuple[tuple[Offer, ...], tuple[StockUse, ...]]:
    """Fill in the instances of every offer that refers to a stock.  Return the offers, and the stocks as used.

    DocumentError for a stock that is not known, and for two offers that draw on the same GPUs, which a plan would
    count twice.
    """
    if problems := list(_problems(offers, stocks)):
        raise DocumentError(name="offers", problems=problems)
    counts = {
        offer.id: sum(entry.instances(offer.gpus_per_instance) for entry in _drawn(offer, stocks))
        for offer in offers
        if offer.stock is not None
    }
    uses = tuple(
        StockUse(
            name=name,
            source=stocks[name].source,
            observed_at=stocks[name].observed_at,
            age_s=stocks[name].age_s(now),
            stale_after_s=stocks[name].stale_after_s,
            stale=stocks[name].is_stale(now),
            available={
                offer.id: counts[offer.id] for offer in offers if offer.stock is not None and offer.stock.name == name
            },
        )
        for name in stock_names(offers)
    )
    return _filled(offers, counts), uses


def as_planned(offers: Sequence[Offer], uses: Iterable[StockUse]) -> tuple[Offer, ...]:
    """Fill in the instances that a stored plan was solved with."""
    return _filled(offers, {offer: count for use in uses for offer, count in use.available.items()})


def _filled(offers: Sequence[Offer], counts: Mapping[str, int]) -> tuple[Offer, ...]:
    return tuple(
        offer.model_copy(update={"available": counts[offer.id], "stock": None}) if offer.id in counts else offer
        for offer in offers
    )


def _drawn(offer: Offer, stocks: Mapping[str, Stock]) -> tuple[StockEntry, ...]:
    if offer.stock is None:
        return ()
    return stocks[offer.stock.name].matching(gpu=offer.gpu, region=offer.region, zone=offer.zone, pool=offer.stock.pool)


def _problems(offers: Sequence[Offer], stocks: Mapping[str, Stock]) -> Iterator[Problem]:
    drawn_by: dict[tuple[str, int], str] = {}
    for position, offer in enumerate(offers):
        if offer.stock is None:
            continue
        name = offer.stock.name
        if name not in stocks:
            known = ", ".join(sorted(stocks)) or "none"
            yield Problem(f"offers[{position}].stock.name", f"there is no stock {name!r} here; allowed: {known}")
            continue
        for entry in _drawn(offer, stocks):
            other = drawn_by.setdefault((name, stocks[name].entries.index(entry)), offer.id)
            if other != offer.id:
                yield Problem(
                    f"offers[{position}].stock",
                    f"draws on the same {entry.gpu} GPUs of stock {name!r} as offer {other!r}; "
                    "allowed: one offer for each GPU; `pool` and `zone` narrow an offer",
                )
                break
