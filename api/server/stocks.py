"""Stores stocks as a collection.  Plans read them by name through their offers."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from api.jobs.catalogues import STOCKS_KIND
from api.schemas.stock import StoredStock
from api.server.collections import AuditVerbs, Collection
from api.server.versioned import DocumentVersion
from fleet.documents import read_stored
from fleet.stock import Stock


def _change(stock: Stock, before: DocumentVersion, after: DocumentVersion) -> Mapping[str, Any]:
    """Return the sums: a controller replaces the document every few minutes."""
    return {
        "etag_before": before.etag,
        "etag": after.etag,
        "observed_at": stock.observed_at.isoformat(),
        "gpus": sum(entry.total for entry in stock.entries),
        "available": sum(entry.available for entry in stock.entries),
    }


STOCKS = Collection(
    kind=STOCKS_KIND,
    path="stock",
    label="stock",
    verbs=AuditVerbs("stock"),
    spec=Stock,
    shown=StoredStock,
    show=lambda found: StoredStock(name=found.name, version=found.version, stock=found.spec),
    parse=partial(read_stored, Stock),
    detail=_change,
    batch=100,
)
