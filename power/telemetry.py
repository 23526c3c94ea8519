"""Telemetry of a row: meter readings, budgets, and the input of a policy."""

from dataclasses import dataclass
from typing import NamedTuple

from power.arrays import Floats


class Reading(NamedTuple):
    """Mean power of a row over a window of the meter."""

    at_s: float  # the end of the window
    row_w: float


class Budget(NamedTuple):
    """The power that a row may draw, until the budget expires."""

    limit_w: float
    expires_at_s: float


@dataclass(frozen=True, slots=True, eq=False)
class RowObservation:
    now_s: float
    reading: Reading
    counts: Floats  # [kinds of server, priority, phase]: servers in each
    budget_w: float
