"""A row of servers in simulated time; `simulate` is the entry point.  Model: docs/explanation/power/simulator.md."""

from power.simulator.outcome import Outcome
from power.simulator.run import simulate
from power.simulator.spec import (
    BiasedTelemetry,
    DriverReloaded,
    Fault,
    IgnoredActuation,
    LateActuation,
    MissingTelemetry,
    PlannerKilled,
    RowSpec,
    StaleTelemetry,
)

__all__ = [
    "BiasedTelemetry",
    "DriverReloaded",
    "Fault",
    "IgnoredActuation",
    "LateActuation",
    "MissingTelemetry",
    "Outcome",
    "PlannerKilled",
    "RowSpec",
    "StaleTelemetry",
    "simulate",
]
