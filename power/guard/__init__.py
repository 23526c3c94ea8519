"""The power guard: the safety loop of one row as a pure state machine (docs/explanation/power/guard.md).

guard = Guard(policy=policy, row=row, settings=settings)
state = guard.start()
state, orders = guard.step(state, telemetry)   # every period
"""

from power.guard.breaker import TripCurve
from power.guard.budgets import BudgetError, BudgetOrder, Entry, Timetable, accept
from power.guard.guard import Guard
from power.guard.orders import NOT_CALM, Calm, Orders
from power.guard.row import Duty, Row
from power.guard.settings import POLCA_DEGRADED, GuardSettings
from power.guard.states import Cause, CommandState, Event, EventKind, GuardMode, GuardState
from power.guard.telemetry import Servers, Telemetry

__all__ = [
    "NOT_CALM",
    "POLCA_DEGRADED",
    "BudgetError",
    "BudgetOrder",
    "Calm",
    "Cause",
    "CommandState",
    "Duty",
    "Entry",
    "Event",
    "EventKind",
    "Guard",
    "GuardMode",
    "GuardSettings",
    "GuardState",
    "Orders",
    "Row",
    "Servers",
    "Telemetry",
    "Timetable",
    "TripCurve",
    "accept",
]
