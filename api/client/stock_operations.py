"""Describes the operations on stocks as `Call`s."""

from http import HTTPStatus

from api.client.calls import (
    MISSING,
    Call,
    Versioned,
    as_versioned,
    deleting,
    if_matching,
    listing,
    path_of,
    putting,
    reading,
)
from api.schemas.pages import Page
from api.schemas.stock import StoredStock
from fleet.stock import Stock


def list_stocks(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[StoredStock]]:
    """Read stocks, by name."""
    return listing("/v1/stock", StoredStock, limit=limit, cursor=cursor)


def get_stock(name: str) -> Call[Versioned[StoredStock]]:
    """Read one stock."""
    return reading(_path(name), as_versioned(StoredStock))


def create_stock(name: str, stock: Stock) -> Call[Versioned[StoredStock]]:
    """Store a stock; PreconditionFailedError when the name is taken."""
    return putting(_path(name), stock, MISSING, as_versioned(StoredStock), success=HTTPStatus.CREATED)


def replace_stock(name: str, stock: Stock, *, if_match: str) -> Call[Versioned[StoredStock]]:
    """Store a new observation of a stock."""
    return putting(_path(name), stock, if_matching(if_match), as_versioned(StoredStock))


def delete_stock(name: str, *, if_match: str) -> Call[None]:
    """Delete a stock."""
    return deleting(_path(name), if_matching(if_match))


def _path(name: str) -> str:
    return path_of("/v1/stock/{name}", name=name)
