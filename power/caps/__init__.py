"""Cap plans: the clocks and budgets that keep a power tree within its limits at the least loss, and its headroom.

`plan_caps` is the entry point.  Formulation: docs/explanation/power/caps.md.
"""

from power.caps.budgets import DomainBudget, domain_budgets
from power.caps.effective_limits import EffectiveLimit, effective_limits, reweighted
from power.caps.headroom import FeedHeadroom, Figure, Growth, feed_headroom, with_risk
from power.caps.planning import DEFAULT_LIMITS, plan_caps
from power.caps.result import CapPlan, ClassCaps, Conflict, FeedCaps, PeriodCaps, row_clocks
from power.caps.terms import Terms

__all__ = [
    "DEFAULT_LIMITS",
    "CapPlan",
    "ClassCaps",
    "Conflict",
    "DomainBudget",
    "EffectiveLimit",
    "FeedCaps",
    "FeedHeadroom",
    "Figure",
    "Growth",
    "PeriodCaps",
    "Terms",
    "domain_budgets",
    "effective_limits",
    "feed_headroom",
    "plan_caps",
    "reweighted",
    "row_clocks",
    "with_risk",
]
