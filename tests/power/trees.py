"""Small power trees for tests."""

from collections.abc import Sequence
from typing import Any

from power.tree import PowerTree

BLOOM = "8xA100-80GB BLOOM-176B"


def group(name: str, feed: str, *, count: int = 4, priority: str = "low", **fields: Any) -> dict[str, Any]:
    """Servers that are busy half of the time, or as given."""
    load = fields.pop("load", {"p50": 0.5, "p99": 0.7, "prompt_share": 0.2})
    return {
        "name": name,
        "power_domain": feed,
        "server": BLOOM,
        "count": count,
        "priority": priority,
        "load": load,
        **fields,
    }


def row(limit_w: float, groups: Sequence[dict[str, Any]], **fields: Any) -> PowerTree:
    """One row with all groups on it."""
    feed = {"name": "row", "kind": "row", "limit_w": limit_w, "oversubscription": 10}
    return PowerTree.model_validate({"name": "hall", "periods": 1, "feeds": [feed], "groups": groups, **fields})


def two_rows(*, pdu_w: float, row_w: float = 25_000.0, periods: int = 1, **pdu: Any) -> PowerTree:
    """Batch and chat on each of two rows under one PDU."""
    feeds = [
        {"name": "pdu", "kind": "pdu", "limit_w": pdu_w, "oversubscription": 10, **pdu},
        {"name": "row-[1-2]", "kind": "row", "parent": "pdu", "limit_w": row_w, "oversubscription": 10},
    ]
    groups = [group("batch", "row-[1-2]"), group("chat", "row-[1-2]", priority="high")]
    return PowerTree.model_validate({"name": "hall", "periods": periods, "feeds": feeds, "groups": groups})
