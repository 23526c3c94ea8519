"""The time of a fault: the worst minute of the row in its uncapped run."""

import numpy as np

from power.arrays import Floats
from power.simulator import Fault, IgnoredActuation, PlannerKilled, RowSpec, StaleTelemetry
from power.simulator.state import WINDOW_S
from power.whatif.request import FaultName, RowRequest

MINUTE = round(60 / WINDOW_S)  # readings
STALE_S = 10.0
BUDGET_VALID_S = float(RowSpec.model_fields["budget_valid_s"].default)


def chosen_fault(request: RowRequest, *, uncapped_w: Floats) -> tuple[Fault, tuple[float, float]] | None:
    """Return the requested fault and its interval."""
    duration_s = len(uncapped_w) * WINDOW_S
    length_s = duration_s if request.fault_s is None else request.fault_s
    match request.fault:
        case None:
            return None
        case FaultName.PLANNER_KILLED:
            from_s = max(0.0, worst_minute_s(uncapped_w) - BUDGET_VALID_S)  # the last budget expires in that minute
            to_s = min(duration_s, from_s + length_s)
            return PlannerKilled(from_s=from_s, to_s=to_s), (from_s, to_s)
        case FaultName.STALE_TELEMETRY:
            length_s = STALE_S if request.fault_s is None else request.fault_s
            from_s = steepest_s(uncapped_w, over_s=length_s, after_s=worst_minute_s(uncapped_w))
            to_s = min(duration_s, from_s + length_s)
            return StaleTelemetry(from_s=from_s, to_s=to_s), (from_s, to_s)
        case FaultName.IGNORED_ACTUATION:
            to_s = min(duration_s, length_s)
            return IgnoredActuation(from_s=0.0, to_s=to_s, share=request.fault_share), (0.0, to_s)


def worst_minute_s(row_w: Floats) -> float:
    """Return the start of the minute with the highest mean power."""
    size = min(MINUTE, len(row_w))
    sums = np.convolve(row_w, np.ones(size), mode="valid")
    return WINDOW_S * float(np.argmax(sums))


def steepest_s(row_w: Floats, *, over_s: float, after_s: float) -> float:
    """Return the start of the largest rise within a minute."""
    first, steps = round(after_s / WINDOW_S), max(1, round(over_s / WINDOW_S))
    here = row_w[first : first + MINUTE + steps]
    if len(here) <= steps:
        return after_s
    return after_s + WINDOW_S * float(np.argmax(here[steps:] - here[:-steps]))
