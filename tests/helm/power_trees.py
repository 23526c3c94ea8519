"""Provides a power plan with every figure that is exported."""

from functools import cache

from power.caps import CapPlan, plan_caps
from tests.power.trees import two_rows


@cache
def cap_plan() -> CapPlan:
    """Plan the caps of two rows on a PDU."""
    return plan_caps(two_rows(pdu_w=67_500.0, row_w=60_000.0))
