"""What a replica carries when nobody measured it: a calibrated roofline of the engine's steps (docs/performance.md).

`highest_rates` is the planner's entry, `step_costs` the replay's, `planner.performance.fitting.fit` makes the
coefficients.  `Replica`, `highest_rate` and what they take and give are the plain roofline of `roofline.py`, which
tables of data sheets in `bench` are still made with.
"""

from planner.performance.config import ReplicaConfig
from planner.performance.costs import step_costs
from planner.performance.estimate import Estimate
from planner.performance.rates import highest_rates
from planner.performance.roofline import Coefficients, Replica, Steady, highest_rate, misfit, steady_state
from planner.performance.steps import StepCosts, step_s

__all__ = [
    "Coefficients",
    "Estimate",
    "Replica",
    "ReplicaConfig",
    "Steady",
    "StepCosts",
    "highest_rate",
    "highest_rates",
    "misfit",
    "steady_state",
    "step_costs",
    "step_s",
]
