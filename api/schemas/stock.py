"""Stored stocks: the GPUs that plans may use, as a controller counts them in a cluster."""

from pydantic import Field

from api.schemas.names import Name
from fleet.documents import Frozen
from fleet.stock import Stock


class StoredStock(Frozen):
    """A stored stock."""

    name: Name
    version: int = Field(ge=1)
    stock: Stock
