"""The guard: the safety loop of one row as a pure state machine.  docs/power/guard.md draws it.

guard = Guard(policy=policy, row=row, settings=settings)
state = guard.start()
state, orders = guard.step(state, telemetry)   # every period
"""

from power.guard.breaker import TripCurve
from power.guard.budgets import BudgetError, BudgetOrder, Entry, Timetable, accept
from power.guard.guard import Guard
from power.guard.orders import NOT_CALM, Calm, Orders
from power.guard.row import Duty, Row
from power.guard.settings import POLCA_CAUTIOUS, GuardSettings
from power.guard.states import Cause, Event, GuardState, Kind, Mode, Told
from power.guard.telemetry import Servers, Telemetry

__all__ = [
    "NOT_CALM",
    "POLCA_CAUTIOUS",
    "BudgetError",
    "BudgetOrder",
    "Calm",
    "Cause",
    "Duty",
    "Entry",
    "Event",
    "Guard",
    "GuardSettings",
    "GuardState",
    "Kind",
    "Mode",
    "Orders",
    "Row",
    "Servers",
    "Telemetry",
    "Timetable",
    "Told",
    "TripCurve",
    "accept",
]
