"""How long a cap plan takes on a hall of 800 servers over 24 periods, how near to the optimum it ends, and how well the
normal law that it rests on agrees with sampling: of a row with as many servers as it allows at a risk, the share of
sampled moments above the limit, five seeds together.

The hall is made here: one UPS with two sides, 4 PDUs, 20 rows, 200 racks, each of 4 servers of two priorities, on a day
whose load swings by half around 13 h.  Assumed: busy shares, their spread, a correlation of 0.5 between groups.
"""

import time
from math import cos, pi
from typing import Any

import numpy as np

from power.caps import Terms, feed_headroom, plan_caps, with_risk
from power.tree import PowerTree

ROWS, RACKS, PERIODS = 20, 10, 24
SERVERS_PER_RACK = 4
ROW_W = 5_800.0 * 31  # by nameplate for 31 servers; 40 stand there
SCALES = (1.0, 1.2, 1.3)  # of the load


RISKS = (1e-2, 1e-3, 1e-4)
SEEDS, SAMPLES = 5, 200_000
ROW_SERVERS, ROW_LIMIT_W = 52, 232_000.0


def run() -> list[dict[str, Any]]:
    plans = [_row(scale) for scale in SCALES]
    return plans + [_sampled(risk, correlation) for risk in RISKS for correlation in (0.0, 0.5, 1.0)]


def one_row(correlation: float) -> PowerTree:
    feed = {"name": "row", "kind": "row", "limit_w": ROW_LIMIT_W, "oversubscription": 2.0}
    groups = [
        {
            "name": priority,
            "power_domain": "row",
            "server": "8xA100-80GB BLOOM-176B",
            "count": ROW_SERVERS // 2,
            "priority": priority,
            "load": {"p50": busy, "p99": busy + 0.15, "prompt_share": 0.15},
        }
        for priority, busy in (("low", 0.65), ("high", 0.55))
    ]
    same = {"low": correlation, "mid": correlation, "high": correlation}
    tree = {"name": "row", "periods": 1, "feeds": [feed], "groups": groups, "correlation": same, "power_error": 0.0}
    return PowerTree.model_validate(tree)


def _sampled(risk: float, correlation: float) -> dict[str, Any]:
    tree, terms = one_row(correlation), Terms(risk=risk)
    (found,) = feed_headroom(tree, terms=terms)
    rows = [with_risk(tree, found, samples=SAMPLES, rng=np.random.default_rng(s), terms=terms) for s in range(SEEDS)]
    full = [one.uncapped.risk.mid for one in rows if one.uncapped.risk is not None]
    slow = [one.capped.risk.mid for one in rows if one.capped.risk is not None]
    return {
        "risk": risk,
        "correlation": correlation,
        "servers": found.servers,
        "more_at_full_clock": found.uncapped.servers.mid,
        "sampled_risk": sum(full) / len(full),
        "more_with_caps": found.capped.servers.mid,
        "sampled_risk_with_caps": sum(slow) / len(slow),
        "stranded_kw": found.uncapped.stranded_w.mid / 1000,
    }


def hall(load: float) -> PowerTree:
    """800 servers; low priority on three racks of ten, mixed on the others."""
    feeds = [
        {
            "name": "ups",
            "kind": "ups",
            "limit_w": 18.4 * ROW_W,
            "redundancy": "2N",
            "ride_through_share": 1.1,
            "oversubscription": 2.0,
        },
        {"name": "pdu-[1-4]", "kind": "pdu", "parent": "ups", "limit_w": 4.8 * ROW_W, "oversubscription": 2.0},
    ]
    groups = []
    for row in range(ROWS):
        feeds.append(
            {
                "name": f"row-{row}",
                "kind": "row",
                "parent": f"pdu-{row // 5 + 1}",
                "limit_w": ROW_W,
                "oversubscription": 2.0,
            }
        )
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


def _row(load: float) -> dict[str, Any]:
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
