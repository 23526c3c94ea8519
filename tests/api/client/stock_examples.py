"""One call of each operation on stocks."""

from typing import Any

from api.client import stock_operations as stocks
from api.client.calls import Call
from api.server.examples import bodies
from fleet.stock import Stock

STOCK = Stock.model_validate(bodies()["put_stock"])
STOCK_EXAMPLES: dict[str, list[Call[Any]]] = {
    "list_stocks": [stocks.list_stocks()],
    "get_stock": [stocks.get_stock("s")],
    "create_stock": [stocks.create_stock("s", STOCK)],
    "replace_stock": [stocks.replace_stock("s", STOCK, if_match='"1-a"')],
    "delete_stock": [stocks.delete_stock("s", if_match='"1-a"')],
}
