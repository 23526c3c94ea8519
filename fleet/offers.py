"""Offers: instances that a provider rents out or an owner has, at a dated price.

An offer is an instance: a machine, or a part of one, rented as a whole.  Its price, stock and quota count instances;
`price_usd_per_gpu_h` is per GPU.  Prices are data with a date and a source, never constants, because they differ by a
factor of three between providers and change every month.
"""

from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from fleet.catalogues import shipped_document
from fleet.documents import Frozen, RuleError, Violation, read_model
from fleet.errors import UnknownNameError
from fleet.stock.document import StockRef

HOURS_PER_YEAR = 8760

OfferId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/-]*$", max_length=120)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Market(StrEnum):
    """The terms of an offer."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"  # the provider may reclaim it at any time
    RESERVED = "reserved"  # paid for the whole commitment, used or not
    OWNED = "owned"  # the price is the owner's internal charge; 0 after depreciation


class Offer(Frozen):
    """One kind of instance in one region, on one market, at one price."""

    id: OfferId
    provider: ShortText
    region: ShortText
    zone: ShortText | None = None
    market: Market
    instance: ShortText | None = None  # the provider's instance type
    gpu: ShortText  # a name of the GPU catalogue
    gpus_per_instance: int = Field(default=1, ge=1, le=1024)
    price_usd_per_h: float = Field(ge=0, le=1e6)  # of one instance, all its GPUs together
    available: int | None = Field(default=None, ge=0)  # instances in stock; None: no limit is known
    stock: StockRef | None = None  # fills in `available` when a plan is solved
    quota: int | None = Field(default=None, ge=0)  # most instances at once; None: no limit
    interruption_rate_per_h: float | None = Field(default=None, ge=0, le=60)  # of spot, per instance; None: not known
    commitment_h: int | None = Field(default=None, ge=1, le=10 * HOURS_PER_YEAR)  # of reserved; None: not stated
    as_of: date = Field(ge=date(2015, 1, 1))  # the date of the price
    source: Annotated[str, StringConstraints(min_length=1, max_length=500)]  # a reference to check the price again
    note: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None

    @property
    def price_usd_per_gpu_h(self) -> float:
        return self.price_usd_per_h / self.gpus_per_instance

    @property
    def limit(self) -> int | None:
        """Instances that can be hired: the lower of stock and quota; None when neither is known."""
        return min((count for count in (self.available, self.quota) if count is not None), default=None)

    @model_validator(mode="after")
    def _fits_its_market(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.price_usd_per_h == 0 and self.market in (Market.ON_DEMAND, Market.SPOT):
            yield ("price_usd_per_h",), f"must be more than 0 on the {self.market} market"
        if self.available is None and self.stock is None and self.market is Market.OWNED:
            yield ("available",), "is required on the owned market: how many instances there are, 0 or more; or `stock`"
        if self.available is not None and self.stock is not None:
            yield ("available",), "give either this or `stock`, which fills it in"
        if self.interruption_rate_per_h is not None and self.market is not Market.SPOT:
            yield ("interruption_rate_per_h",), f"only spot is interrupted, leave it out on the {self.market} market"
        if self.commitment_h is not None and self.market is not Market.RESERVED:
            yield ("commitment_h",), f"only reserved is committed to, leave it out on the {self.market} market"


class PriceSheet(Frozen):
    """Offers under unique ids."""

    offers: tuple[Offer, ...] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        RuleError.raise_for(self._listed_twice())
        return self

    @cached_property
    def by_id(self) -> dict[str, Offer]:
        return {offer.id: offer for offer in self.offers}

    def get(self, offer_id: str) -> Offer:
        try:
            return self.by_id[offer_id]
        except KeyError:
            raise UnknownNameError(kind="offer", name=offer_id, known=self.by_id) from None

    def gpu_mentions(self) -> Iterator[Violation]:
        """Each place where the sheet names a GPU, for `fleet.gpus.unknown_gpus`."""
        for position, offer in enumerate(self.offers):
            yield ("offers", position, "gpu"), offer.gpu

    def _listed_twice(self) -> Iterator[Violation]:
        first: dict[str, int] = {}
        for position, offer in enumerate(self.offers):
            if (earlier := first.setdefault(offer.id, position)) != position:
                yield ("offers", position, "id"), f"must be unique, but {offer.id!r} is already offers[{earlier}]"


@cache
def builtin_prices() -> PriceSheet:
    """The dated sample sheet that ships with the product: for trials and tests, not for buying."""
    return read_model(shipped_document("prices.yaml"), PriceSheet)
