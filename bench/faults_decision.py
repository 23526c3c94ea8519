"""Cost of one decision: one step of the joint fit at 1,024 and 16,384 ranks, `time.process_time` around it.

Quiet background, eight faults at once, and ten times the congestion.  The windows come from the simulator, with lost
agents.
"""

import time
from typing import Any

import numpy as np

from faults.localisation import LocalisationDetector
from faults.simulator.cluster import Cluster, build
from faults.simulator.congestion import Congestion, Crowding
from faults.simulator.fault_schedule import FaultEvent, FaultKind, FaultSchedule
from faults.simulator.noise import LAB
from faults.simulator.shape import Shape
from faults.simulator.slow import SlowPlane
from faults.simulator.telemetry import Losses, Telemetry

WINDOW_S = 5.0
WINDOWS, WARM_UP = 40, 30
SITUATIONS = {"quiet": (0.5, False), "eight faults": (0.5, True), "congestion x10": (5.0, False)}


def run() -> list[dict[str, Any]]:
    return [
        _timed(ranks, what, per_uplink_h=rate, eight=eight)
        for ranks in (1024, 16384)
        for what, (rate, eight) in SITUATIONS.items()
    ]


def _timed(ranks: int, what: str, *, per_uplink_h: float, eight: bool) -> dict[str, Any]:
    cluster = build(Shape(ranks), seed=1)
    plane, rng = SlowPlane(cluster, LAB, window_s=WINDOW_S, seed=1), np.random.default_rng(2)
    congestion = Congestion(cluster.shape.uplinks, Crowding(per_uplink_h=per_uplink_h), rng)
    telemetry = Telemetry(cluster.shape.nodes, Losses(), rng)
    schedule = FaultSchedule(_faults(cluster) if eight else [])
    localiser = LocalisationDetector(cluster.known)
    state, spent_s, nodes = localiser.start(), [], 0
    for at in range(WARM_UP + WINDOWS):
        from_s, to_s = at * WINDOW_S, (at + 1) * WINDOW_S
        window = plane.window(
            from_s,
            path=congestion.advance(from_s, to_s),
            reported=telemetry.reported(from_s, to_s),
            events=schedule.during(from_s, to_s),
        )
        started_s = time.process_time()
        state, diagnoses = localiser.step(state, window)
        spent_s.append(time.process_time() - started_s)
        nodes = len([one for one in diagnoses if one.isolate])
    kept = spent_s[WARM_UP:]
    return {
        "what": f"one decision, {ranks} ranks, {what}",
        "edges": len(cluster.fabric),
        "entities": len(localiser.traffic_fit.entities),
        "median_ms": 1000.0 * float(np.median(kept)),
        "p95_ms": 1000.0 * float(np.quantile(kept, 0.95)),
        "worst_ms": 1000.0 * max(kept),
        "young_worst_ms": 1000.0 * max(spent_s[1:WARM_UP]),
        "nodes_named": nodes,
    }


def _faults(cluster: Cluster) -> list[FaultEvent]:
    """Eight that begin after the warm-up, spread over the nodes."""
    begin_s, end_s = WARM_UP * WINDOW_S, 1e6
    step = cluster.shape.ranks // 8
    kinds = [FaultKind.SLOW_TX, FaultKind.SLOW_RX, FaultKind.SLOW_NIC, FaultKind.SLOW_TX] * 2
    return [
        FaultEvent(what, step * at + 11 * at, begin_s, end_s, factor)
        for at, (what, factor) in enumerate(zip(kinds, (1.25, 1.25, 1.5, 2.0) * 2, strict=True))
    ]
