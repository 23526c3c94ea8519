"""Stock: the GPUs of a cluster that a plan may use, by type, place and pool, with the time of the observation.

`document` has the document and the instances that it holds, and `kubernetes` counts it from the objects of a
cluster.  `planner.stock` fills in the offers that refer to a stock.
"""

from fleet.stock.document import FreeNodes, Stock, StockEntry, StockRef, Unavailable

__all__ = ["FreeNodes", "Stock", "StockEntry", "StockRef", "Unavailable"]
