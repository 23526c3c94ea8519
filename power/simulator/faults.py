"""Injection of faults into the engine's state."""

from collections.abc import Sequence

from power.simulator.spec import (
    BiasedTelemetry,
    DriverReloaded,
    Fault,
    IgnoredActuation,
    LateActuation,
    MissingTelemetry,
    PlannerKilled,
    StaleTelemetry,
)
from power.simulator.state import RowState

_PREFIX = {
    StaleTelemetry: "stale",
    MissingTelemetry: "missing",
    BiasedTelemetry: "meter",
    IgnoredActuation: "ignored",
    LateActuation: "late",
}


def install(state: RowState, faults: Sequence[Fault]) -> None:
    """Install the faults in the engine's state, at most one of each kind."""
    row = state.row[0]
    for fault in faults:
        if isinstance(fault, PlannerKilled):
            continue
        if isinstance(fault, DriverReloaded):
            row["reloaded_s"], row["reloaded_share"] = fault.at_s, fault.share
            continue
        prefix = _PREFIX[type(fault)]
        row[f"{prefix}_from_s"], row[f"{prefix}_to_s"] = fault.from_s, fault.to_s
        if isinstance(fault, MissingTelemetry | IgnoredActuation | LateActuation):
            row[f"{prefix}_share"] = fault.share
        if isinstance(fault, IgnoredActuation):
            row["brake_ignored_share"] = fault.brake_share
        if isinstance(fault, LateActuation):
            row["late_s"] = fault.late_s
        if isinstance(fault, BiasedTelemetry):
            row["meter_factor"] = fault.factor


def kill_times(faults: Sequence[Fault]) -> tuple[PlannerKilled, ...]:
    """Return the intervals without a planner."""
    return tuple(fault for fault in faults if isinstance(fault, PlannerKilled))
