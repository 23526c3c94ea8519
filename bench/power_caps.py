"""How long a cap plan takes on a hall of 800 servers over 24 periods, and how near to the optimum it ends.

The hall is made here: one UPS with two sides, 4 PDUs, 20 rows, 200 racks, each of 4 servers of two priorities, on a day
whose load swings by half around 13 h.  Assumed: busy shares, their spread, a correlation of 0.5 between groups.
"""

import time
from math import cos, pi

from bench.harness import Row
from power.caps import Terms, plan_caps
from power.tree import PowerTree

ROWS, RACKS, PERIODS = 20, 10, 24
SERVERS_PER_RACK = 4
ROW_W = 5_800.0 * 31  # by nameplate for 31 servers; 40 stand there
SCALES = (1.0, 1.2, 1.3)  # of the load


def run() -> list[Row]:
    return [_row(scale) for scale in SCALES]


def hall(load: float) -> PowerTree:
    """800 servers; low priority on three racks of ten, mixed on the others."""
    twice = {"oversubscription": 2.0}
    ups = {"limit_w": 18.4 * ROW_W, "redundancy": "2N", "ride_through_share": 1.1, **twice}
    feeds = [
        {"name": "ups", "kind": "ups", **ups},
        {"name": "pdu-[1-4]", "kind": "pdu", "parent": "ups", "limit_w": 4.8 * ROW_W, **twice},
    ]
    groups = []
    for row in range(ROWS):
        parent = f"pdu-{row // 5 + 1}"
        feeds.append({"name": f"row-{row}", "kind": "row", "parent": parent, "limit_w": ROW_W, **twice})
        feeds.append(
            {"name": f"row-{row}-rack-[1-{RACKS}]", "kind": "rack", "parent": f"row-{row}", "limit_w": 23_500.0}
        )
        day = [load * (0.5 + 0.22 * cos(2 * pi * (hour - 13 - row % 3) / PERIODS)) for hour in range(PERIODS)]
        high = [min(1.0, share * 1.25) for share in day]
        for name, racks, priority in (("batch", "[1-3]", "low"), ("chat", "[4-10]", "high")):
            groups.append(
                {
                    "name": f"{name}-{row}",
                    "power_domain": f"row-{row}-rack-{racks}",
                    "count": SERVERS_PER_RACK,
                    "server": "8xA100-80GB BLOOM-176B",
                    "priority": priority,
                    "load": {"p50": day, "p99": high, "prompt_share": 0.15, "together": 4},
                }
            )
    return PowerTree.model_validate({"name": "hall", "periods": PERIODS, "feeds": feeds, "groups": groups})


def _row(load: float) -> Row:
    tree = hall(load)
    started_s = time.process_time()
    plan = plan_caps(tree, terms=Terms())
    used_s = time.process_time() - started_s
    hierarchy = tree.hierarchy
    return {
        "load": load,
        "feeds": len(hierarchy.feeds),
        "classes": len(hierarchy.classes),
        "periods": tree.periods,
        "status": plan.status.value,
        "plan_s": used_s,
        "loss_servers": plan.loss,
        "bound_servers": plan.bound,
        "gap_percent": None if plan.gap is None else 100 * plan.gap,
        "periods_with_caps": sum((period.loss or 0) > 0 for period in plan.periods),
        "binding": plan.binding or "-",
    }
