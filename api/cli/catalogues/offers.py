"""`fleetwright offers`: read and replace price sheets."""

from typing import Any

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.tables import Column, Table, number
from fleet.documents import Document
from fleet.gpus import GpuCatalogue, require_known_gpus
from fleet.offers import Offer, PriceSheet, builtin_prices

COLUMNS = (
    Column("offer"),
    Column("GPU"),
    number("GPUs"),
    Column("market"),
    Column("region"),
    number("$/h", decimals=3),
    number("$/GPU h", decimals=3),
    number("stock"),
    Column("as of"),
)


def _table(sheet: PriceSheet) -> Table:
    return Table(
        COLUMNS,
        (
            (
                offer.id,
                offer.gpu,
                offer.gpus_per_instance,
                offer.market,
                offer.region,
                offer.price_usd_per_h,
                offer.price_usd_per_gpu_h,
                offer.limit,
                offer.as_of,
            )
            for offer in sheet.offers
        ),
    )


def _derived(_sheet: PriceSheet, offer: Offer) -> dict[str, Any]:
    return {"price_usd_per_gpu_h": offer.price_usd_per_gpu_h, "limit": offer.limit}


def _require_known(document: Document, sheet: PriceSheet, gpus: GpuCatalogue) -> None:
    require_known_gpus(document, sheet.gpu_mentions(), gpus)


app = document_app(
    Kind(
        name="offers",
        entry_name="offer",
        model=PriceSheet,
        builtin=builtin_prices,
        overlaid=None,  # a sheet replaces the shipped one: prices of two sheets are no common market
        table=_table,
        names=lambda sheet: sheet.by_id,
        entry=PriceSheet.get,
        derived=_derived,
        require_known=_require_known,
    )
)
