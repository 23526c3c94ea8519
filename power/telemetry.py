"""What is known of a row at a moment: the meter's word, and what routers and agents say their servers are doing."""

from dataclasses import dataclass
from typing import NamedTuple

from power.arrays import Floats


class Reading(NamedTuple):
    """Mean power of a row over a window of the meter."""

    at_s: float  # the end of the window
    row_w: float


class Budget(NamedTuple):
    """What a row may draw, as the planner last said it.  An expired one is not believed."""

    limit_w: float
    expires_at_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What a policy decides on.  All of it may be late; `now_s` says what time it is."""

    now_s: float
    reading: Reading
    counts: Floats  # [kinds of server, priority, phase]: servers in each
    budget_w: float
