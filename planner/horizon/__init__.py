"""A day or more of periods: what to reserve, what to hire when, and what to start early enough (docs/horizon.md)."""

from planner.horizon.initial_state import Shortfall, shortfall
from planner.horizon.plan import CostSplit, HorizonPlan, PeriodPlan
from planner.horizon.problem import HorizonProblem, Market
from planner.horizon.solve import solve_horizon

__all__ = [
    "CostSplit",
    "HorizonPlan",
    "HorizonProblem",
    "Market",
    "PeriodPlan",
    "Shortfall",
    "shortfall",
    "solve_horizon",
]
