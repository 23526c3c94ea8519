"""The power guard: the safety loop of one row as a pure state machine (docs/explanation/power/guard.md).

guard = Guard(policy=policy, row=row, settings=settings)
state = guard.start()
state, commands = guard.step(state, telemetry)   # every period
"""

from power.guard.breaker import TripCurve
from power.guard.budgets import BudgetRequest, Timetable, accept
from power.guard.guard import Guard
from power.guard.row import Duty, Row
from power.guard.settings import GuardSettings
from power.guard.states import NOT_CALM, Calm, Cause, Commands, Event, EventKind, GuardMode, GuardState
from power.guard.telemetry import Servers, Telemetry

__all__ = [
    "NOT_CALM",
    "BudgetRequest",
    "Calm",
    "Cause",
    "Commands",
    "Duty",
    "Event",
    "EventKind",
    "Guard",
    "GuardMode",
    "GuardSettings",
    "GuardState",
    "Row",
    "Servers",
    "Telemetry",
    "Timetable",
    "TripCurve",
    "accept",
]
