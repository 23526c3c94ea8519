"""`fleetwright offers`: read and replace price sheets."""

from typing import Any

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.tables import Column, number, table_of
from fleet.documents import Document
from fleet.gpus import GpuCatalogue, require_known_gpus
from fleet.offers import Offer, PriceSheet, builtin_prices

COLUMNS = (
    Column("offer", of="id"),
    Column("GPU", of="gpu"),
    number("GPUs", of="gpus_per_instance"),
    Column("market", of="market"),
    Column("region", of="region"),
    number("$/h", decimals=3, of="price_usd_per_h"),
    number("$/GPU h", decimals=3, of="price_usd_per_gpu_h"),
    number("stock", of="limit"),
    Column("as of", of="as_of"),
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
        table=lambda sheet: table_of(COLUMNS, sheet.offers),
        names=lambda sheet: sheet.by_id,
        entry=PriceSheet.get,
        derived=_derived,
        require_known=_require_known,
    )
)
