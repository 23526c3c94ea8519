"""Cap plans: the clocks and budgets that keep a power tree within its limits at the least loss, and its headroom.

`plan_caps` is the entry point.  Formulation: docs/explanation/power/caps.md.
"""

from power.caps.budgets import domain_budgets
from power.caps.headroom import FeedHeadroom, effective_limits, feed_headroom, with_risk
from power.caps.options import Terms
from power.caps.planning import DEFAULT_LIMITS, plan_caps
from power.caps.result import CapPlan, ClassCaps, FeedCaps, PeriodCaps

__all__ = [
    "DEFAULT_LIMITS",
    "CapPlan",
    "ClassCaps",
    "FeedCaps",
    "FeedHeadroom",
    "PeriodCaps",
    "Terms",
    "domain_budgets",
    "effective_limits",
    "feed_headroom",
    "plan_caps",
    "with_risk",
]
