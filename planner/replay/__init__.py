"""A day of requests through a planned fleet: a discrete-event simulator of continuously batching engines.

`replay` runs it, `check_slo` compares the result with the SLO, and `find_headroom` plans again until the replay holds.
docs/explanation/planner/replay.md states what the model covers.
"""

from planner.replay.headroom import Headroom, Trial, find_headroom
from planner.replay.pool import Pool, ReplayPool, SplitPool, Stage
from planner.replay.router import Balancing, Routing
from planner.replay.run import ReplayResult, replay
from planner.replay.slo_check import Tightness, check_slo
from planner.replay.stream import Stream, synthetic_arrivals

__all__ = [
    "Balancing",
    "Headroom",
    "Pool",
    "ReplayPool",
    "ReplayResult",
    "Routing",
    "SplitPool",
    "Stage",
    "Stream",
    "Tightness",
    "Trial",
    "check_slo",
    "find_headroom",
    "replay",
    "synthetic_arrivals",
]
