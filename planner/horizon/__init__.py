"""Plans over periods: what to reserve, what to hire in each period, and what to start early.

`solve_horizon` solves a `HorizonProblem`.  docs/explanation/planner/horizon.md has the formulation.
"""

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
