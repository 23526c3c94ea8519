"""Plans over periods: what to reserve, what to hire in each period, and what to start early.

`solve_horizon` solves a `HorizonProblem`.  docs/explanation/planner/horizon.md has the formulation.
"""

from planner.horizon.feasibility import Shortfall, shortfall
from planner.horizon.plan import CostSplit, HorizonPlan, PeriodPlan
from planner.horizon.problem import HorizonProblem
from planner.horizon.solve import solve_horizon

__all__ = [
    "CostSplit",
    "HorizonPlan",
    "HorizonProblem",
    "PeriodPlan",
    "Shortfall",
    "shortfall",
    "solve_horizon",
]
