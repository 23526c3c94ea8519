"""The offers of a planning loop with the stocks that they refer to: a stale or missing one holds the loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from api.client import AsyncClient, NotFoundError
from api.client.operations import OFFERS
from fleet.offers import Offer
from fleet.stock import Stock
from planner.request import PlanRequest
from planner.stock import offers_with_stock, stock_names


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOffers:
    """A request and the price sheet of the service, with the instances of today."""

    request: PlanRequest
    of_service: tuple[Offer, ...]
    problems: Sequence[str] = ()


async def read_offers(api: AsyncClient, request: PlanRequest, *, now: datetime) -> PlanningOffers:
    """Read the price sheet and the stocks, and fill in the offers that the request is planned with."""
    of_service = (await api.get_document(OFFERS)).document.offers
    offers = of_service if request.offers is None else request.offers
    stocks, problems = {}, []
    for name in stock_names(offers):
        try:
            stocks[name] = stock = (await api.get_stock(name)).document.stock
        except NotFoundError:
            problems.append(f"stock {name!r} is not stored")
            continue
        if (problem := _staleness(name, stock, now=now)) is not None:
            problems.append(problem)
    if problems:
        return PlanningOffers(request=request, of_service=of_service, problems=problems)
    filled, _uses = offers_with_stock(offers, stocks, now=now)
    if request.offers is None:
        return PlanningOffers(request=request, of_service=filled)
    return PlanningOffers(request=request.model_copy(update={"offers": filled}), of_service=of_service)


def _staleness(name: str, stock: Stock, *, now: datetime) -> str | None:
    if not stock.is_stale(now):
        return None
    age_s, limit_s = stock.age_s(now), stock.stale_after_s
    return f"stock {name!r} was observed {age_s:,.0f} s ago; allowed: at most {limit_s:,.0f} s"
